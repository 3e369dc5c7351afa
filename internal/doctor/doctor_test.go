package doctor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pandovm/pando/internal/doctor"
	"github.com/pandovm/pando/internal/jail"
)

func TestExamineThisHost(t *testing.T) {
	t.Parallel()
	cgroups, err := jail.DetectCgroups()
	if err != nil {
		t.Fatal(err)
	}
	var told []doctor.Check
	r := doctor.Examine(t.Context(), doctor.Options{
		DataDir: t.TempDir(), CacheDir: "/nonexistent/cache", Cgroups: cgroups,
		Boot: func(context.Context) (string, error) { return "a guest", nil },
		Seen: func(c doctor.Check) { told = append(told, c) },
	})
	for _, c := range r.Checks {
		t.Logf("%-18s %-5s %s | %s", c.Name, c.Result, c.Seen, c.Fix)
	}
	_ = errors.New
}
