package file

import (
	"context"
	"io"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/vm"
)

// VMs finds and wakes VMs.
type VMs interface {
	// Awake returns the VM with that id or slug once it runs.
	Awake(ctx context.Context, ref string) (vm.VM, error)
	// Busy says that the VM is used, until release is called.
	Busy(id string) (release func())
}

// Node carries orders out in the guest of a VM that runs on it. Ids are those of
// VMs. Refusals by the guest are faults; paths are absolute.
type Node interface {
	FileStat(ctx context.Context, id, path string) (Info, error)
	// FileList calls each for the entries of a folder, as the guest has them.
	FileList(ctx context.Context, id string, l List, each func(Info) error) error
	FileChange(ctx context.Context, id string, c Change) error
	FileRead(ctx context.Context, id, path string, r Range) (Content, error)
	// FileWrite replaces a file by the content, at once. An error of content
	// leaves the file as it was, and is returned.
	FileWrite(ctx context.Context, id string, w Write, content io.Reader) error
	// FileArchive calls each for a tree, folders before what is in them, with the
	// content of regular files, and returns how many files it left out because
	// they have none.
	FileArchive(ctx context.Context, id, path string, each func(Info, io.Reader) error) (skipped int64, err error)
	// FileExtract makes the files that next returns, until io.EOF.
	FileExtract(ctx context.Context, id string, e Extract, next func() (Info, io.Reader, error)) error
	FileWatch(ctx context.Context, id, path string, recursive bool, each func(Event) error) error

	UploadOpen(ctx context.Context, id, upload string, w Write) (Upload, error)
	// UploadWrite adds a chunk, as a whole or not at all. One that is there
	// already is left alone.
	UploadWrite(ctx context.Context, id, upload string, offset int64, content io.Reader) (Upload, error)
	UploadStatus(ctx context.Context, id, upload string) (Upload, error)
	UploadAbort(ctx context.Context, id, upload string) error
	UploadCommit(ctx context.Context, id, upload string) error
	// UploadRead returns what has been received so far.
	UploadRead(ctx context.Context, id, upload string) (Content, error)
}

// Info describes a file itself.
type Info struct {
	// Name is relative to the folder that was asked about; empty for that itself.
	Name string
	Kind api.FileKind
	// Mode holds permission bits only.
	Mode     uint32
	Size     int64
	Modified time.Time
	UID, GID int
	// Owner and Group are names, or digits.
	Owner, Group string
	// Target is what a symbolic link says, TargetKind what it leads to.
	Target     string
	TargetKind api.FileKind
	// LinkTo is the Name of an earlier file that this one is a hard link to.
	LinkTo string
	// Inode tells files apart that replaced each other.
	Inode uint64
}

// List says what of a folder to list.
type List struct {
	Path string
	// Recursive lists what is below, too: Depth levels, 0 for all.
	Recursive bool
	Depth     int
}

// Range is a part of a file. The zero Range is all of it.
type Range struct {
	// Offset is where it begins; -1 means the last Length bytes.
	Offset int64
	// Length of 0 means up to the end.
	Length int64
}

// Content is a file's content on its way. Close must be called.
type Content interface {
	io.ReadCloser
	io.WriterTo
	// Info describes the file; its Size is -1 if only the end tells.
	Info() Info
	// Span is which part of it comes: a length of -1 means up to the end.
	Span() (offset, length int64)
}

// Write says where content goes.
type Write struct {
	Path string
	// Mode of nil keeps that of the file that is there, or means 0600.
	Mode *uint32
	// Owner and Group are names or digits; empty keeps those of the file that is
	// there, or means the account that commands run as.
	Owner, Group string
	// Size is the length of the content, -1 if nobody knows.
	Size int64
	// SHA256 is that of the content in hexadecimal, or empty.
	SHA256 string
}

// ChangeKind is what a Change does.
type ChangeKind int

// The kinds of changes.
const (
	Mkdir ChangeKind = iota + 1
	Remove
	Copy
	Move
	Chmod
	Chown
)

// Change is an order without content.
type Change struct {
	Kind ChangeKind
	// Path is what is changed; To is where it goes, for Copy and Move.
	Path, To string
	// Mode counts for Mkdir, where nil means 0755, and for Chmod.
	Mode         *uint32
	Owner, Group string
	// Recursive counts for Chmod and Chown.
	Recursive bool
	// Overwrite allows something to be at To.
	Overwrite bool
}

// Extract says where an archive goes.
type Extract struct {
	// Path is the folder that it fills; it is made if it is missing.
	Path string
	// Owner and Group are as for Write. KeepOwner takes the numbers in the archive.
	Owner, Group string
	KeepOwner    bool
}

// Event is something that happened to a file.
type Event struct {
	Type api.FileEventType
	// Path is absolute; From is the former path of what was moved.
	Path, From string
	Dir        bool
}

// Upload is the state of an upload.
type Upload struct {
	ID, Path       string
	Size, Received int64
}
