package httpapi_test

import (
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

var (
	_ httpapi.VMs       = (*vm.Manager)(nil)
	_ httpapi.Snapshots = (*snapshot.Service)(nil)
)
