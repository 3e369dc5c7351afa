package agent

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// inNamespaces is set for the copy of the test binary that may change the
// hostname and mount things.
const inNamespaces = "PANDO_TEST_IN_NAMESPACES"

func TestMain(m *testing.M) {
	if os.Getenv(inNamespaces) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}
