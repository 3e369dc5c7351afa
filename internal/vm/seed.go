package vm

import (
	"strconv"

	"github.com/google/uuid"
)

// ID is the id of the n-th VM that is made from a seed. Without a seed it is
// a new one each time. A request that may be repeated names a seed, so that
// what it made can be found again.
func ID(seed string, n int) string { return "vm-" + fromSeed(seed, "vm", n) }

// SnapshotID is the id of the snapshot that is made from a seed.
func SnapshotID(seed string) string { return "sh-" + fromSeed(seed, "sh", 0) }

func fromSeed(seed, kind string, n int) string {
	if seed == "" {
		return uuid.NewString()
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(seed+" "+kind+" "+strconv.Itoa(n))).String()
}
