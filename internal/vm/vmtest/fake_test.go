package vmtest_test

import (
	"testing"

	"github.com/pandovm/pando/internal/vm/vmtest"
)

func TestFakeConforms(t *testing.T) {
	t.Parallel()
	vmtest.Conformance(t, vmtest.NewFake("sh-base"), "sh-base")
}
