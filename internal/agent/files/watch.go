package files

import "errors"

func (r *request) watch() error { return errors.New("not yet") }
