package api

import _ "embed"

//go:embed openapi.json
var openAPI string

// OpenAPI returns the OpenAPI 3.1 description of the API, which is generated
// from the daemon's routes and from the types and comments of this package.
func OpenAPI() string { return openAPI }
