package jail_test

import (
	"os"
	"testing"

	"github.com/pandovm/pando/internal/jail"
)

func TestCPUTime(t *testing.T) {
	t.Parallel()
	self, err := jail.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	before, err := self.CPUTime()
	if err != nil || before <= 0 {
		t.Fatalf("this process has used %v (%v)", before, err)
	}
	for after := before; after <= before; {
		if after, err = self.CPUTime(); err != nil || after < before {
			t.Fatalf("it has used %v after %v (%v)", after, before, err)
		}
	}
	if _, err := (jail.Process{PID: 1 << 28}).CPUTime(); err == nil {
		t.Error("a process that cannot exist has used time")
	}
}
