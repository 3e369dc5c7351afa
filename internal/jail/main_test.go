package jail_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pandovm/pando/internal/jail"
)

// TestMain lets the test binary be the launcher, as the pando binary is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == jail.LauncherArg {
		jail.Main(os.Args[2:])
	}
	goleak.VerifyTestMain(m)
}
