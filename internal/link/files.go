package link

import "fmt"

// PathFiles is the path of every request about the guest's files. Its body is
// one FrameFileOrder; what follows it, up to the end of the body, is content as
// it is (FileWrite, UploadWrite) or frames (FileExtract). A body that is broken
// off is an order that was taken back.
const PathFiles = "/files"

// The frames of PathFiles. The agent answers with any number of FrameFileInfo,
// FrameFileData and FrameFileEvent, as the operation has it, and at last with
// FrameFileDone or FrameFileRefused.
const (
	FrameFileOrder   FrameType = 64
	FrameFileInfo    FrameType = 65
	FrameFileData    FrameType = 66
	FrameFileEvent   FrameType = 67
	FrameFileDone    FrameType = 68
	FrameFileRefused FrameType = 69
)

// FileOp is what is to be done with a file.
type FileOp int64

// The operations on files.
const (
	// FileStat: one FileInfo of Path itself, and of what it leads to if it is a
	// symbolic link.
	FileStat FileOp = iota + 1
	// FileList: a FileInfo per entry of the folder Path, named relative to it;
	// with Recursive those below it, down to Depth levels (0: all), folders
	// before what is in them.
	FileList
	// FileMkdir makes Path and its parents; a folder that exists is fine.
	FileMkdir
	// FileRemove removes Path and what is below it.
	FileRemove
	// FileRead: one FileInfo with what will be sent, then that as data.
	FileRead
	// FileWrite replaces Path by the content that follows, at once or not at all.
	FileWrite
	// FileCopy copies Path to To, FileMove renames it.
	FileCopy
	FileMove
	// FileChmod and FileChown change what Mode, Owner and Group say.
	FileChmod
	FileChown
	// FileArchive: a FileInfo per file of the tree at Path, folders before what is
	// in them, each regular one followed by Size bytes of data.
	FileArchive
	// FileExtract makes the files that the frames describe, in the form of
	// FileArchive, below the folder Path.
	FileExtract
	// FileWatch reports what happens to Path and, with Recursive, below it.
	FileWatch
	// UploadOpen starts an upload to Path; the other operations name it by ID.
	UploadOpen
	// UploadWrite adds the content that follows at Offset; an offset that is
	// already there is confirmed and left alone.
	UploadWrite
	UploadStatus
	UploadAbort
	// UploadCommit puts the content in the place of Path.
	UploadCommit
	// UploadRead: what has been received so far, as FileRead.
	UploadRead
)

// FileOrder is an operation on files, as FrameFileOrder carries it.
type FileOrder struct {
	Op FileOp
	// Path is absolute; To is the second path of FileCopy and FileMove.
	Path, To string
	// Owner and Group are names or numbers; empty means the account that commands
	// run as by default, for what is made, and no change, for what exists.
	Owner, Group string
	// Mode holds permission bits; it counts if HasMode.
	Mode    uint32
	HasMode bool
	// Recursive and Depth: how far below Path.
	Recursive bool
	Depth     int64
	// Overwrite allows To to exist.
	Overwrite bool
	// KeepOwner makes FileExtract take owners from the frames.
	KeepOwner bool
	// Offset and Length are the range of FileRead. A Length of -1 means up to the
	// end, an Offset of -1 the last Length bytes.
	Offset, Length int64
	// Size is the length of what will be written, -1 if nobody knows.
	Size int64
	// ID names an upload.
	ID string
}

const (
	fileOp = iota + 1
	filePath
	fileTo
	fileOwner
	fileGroup
	fileMode
	fileRecursive
	fileDepth
	fileOverwrite
	fileOffset
	fileLength
	fileSize
	fileID
	fileKeepOwner
)

// MarshalBinary encodes o as a record. It never fails.
func (o FileOrder) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(fileOp, int64(o.Op))
	enc.text(filePath, o.Path)
	enc.text(fileTo, o.To)
	enc.text(fileOwner, o.Owner)
	enc.text(fileGroup, o.Group)
	if o.HasMode {
		enc.int(fileMode, int64(o.Mode))
	}
	enc.flag(fileRecursive, o.Recursive)
	enc.int(fileDepth, o.Depth)
	enc.flag(fileOverwrite, o.Overwrite)
	enc.int(fileOffset, o.Offset)
	enc.int(fileLength, o.Length)
	enc.int(fileSize, o.Size)
	enc.text(fileID, o.ID)
	enc.flag(fileKeepOwner, o.KeepOwner)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (o *FileOrder) UnmarshalBinary(b []byte) error {
	*o = FileOrder{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case fileOp:
			o.Op = FileOp(d.int())
		case filePath:
			o.Path = d.text()
		case fileTo:
			o.To = d.text()
		case fileOwner:
			o.Owner = d.text()
		case fileGroup:
			o.Group = d.text()
		case fileMode:
			o.Mode, o.HasMode = uint32(d.int()), true
		case fileRecursive:
			o.Recursive = d.flag()
		case fileDepth:
			o.Depth = d.int()
		default:
			o.decodeRest(&d)
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode file order: %w", d.err)
	}
	return nil
}

func (o *FileOrder) decodeRest(d *decoder) {
	switch d.tag {
	case fileOverwrite:
		o.Overwrite = d.flag()
	case fileOffset:
		o.Offset = d.int()
	case fileLength:
		o.Length = d.int()
	case fileSize:
		o.Size = d.int()
	case fileID:
		o.ID = d.text()
	case fileKeepOwner:
		o.KeepOwner = d.flag()
	}
}

// The types of files in FileInfo.Mode, as stat(2) has them.
const (
	ModeType    = 0o170000
	ModeFile    = 0o100000
	ModeDir     = 0o040000
	ModeSymlink = 0o120000
	ModeFifo    = 0o010000
	ModeSocket  = 0o140000
	ModeChar    = 0o020000
	ModeBlock   = 0o060000
)

// FileInfo describes a file, as FrameFileInfo carries it.
type FileInfo struct {
	// Name is relative to the folder that was asked about; empty for that itself.
	Name string
	// Mode holds type and permissions, as stat(2) has them.
	Mode uint32
	Size int64
	// ModifiedNs is in Unix nanoseconds.
	ModifiedNs int64
	UID, GID   uint32
	// Owner and Group are the names of UID and GID, or their digits.
	Owner, Group string
	// Target is what a symbolic link says, and TargetMode the mode of what it
	// leads to, 0 if that is nothing.
	Target     string
	TargetMode uint32
	// Inode tells two files with the same content from each other.
	Inode int64
	// LinkTo is the Name of an earlier file that this one is a hard link to.
	LinkTo string
	// Offset and Length are what a FileRead sends. A Length of -1 means that only
	// the end of the data tells.
	Offset, Length int64
}

const (
	infoName = iota + 1
	infoMode
	infoSize
	infoModified
	infoUID
	infoGID
	infoOwner
	infoGroup
	infoTarget
	infoTargetMode
	infoInode
	infoLinkTo
	infoOffset
	infoLength
)

// MarshalBinary encodes i as a record. It never fails.
func (i FileInfo) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.text(infoName, i.Name)
	enc.int(infoMode, int64(i.Mode))
	enc.int(infoSize, i.Size)
	enc.int(infoModified, i.ModifiedNs)
	enc.int(infoUID, int64(i.UID))
	enc.int(infoGID, int64(i.GID))
	enc.text(infoOwner, i.Owner)
	enc.text(infoGroup, i.Group)
	enc.text(infoTarget, i.Target)
	if i.TargetMode != 0 {
		enc.int(infoTargetMode, int64(i.TargetMode))
	}
	if i.Inode != 0 {
		enc.int(infoInode, i.Inode)
	}
	enc.text(infoLinkTo, i.LinkTo)
	if i.Offset != 0 || i.Length != 0 {
		enc.int(infoOffset, i.Offset)
		enc.int(infoLength, i.Length)
	}
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (i *FileInfo) UnmarshalBinary(b []byte) error {
	*i = FileInfo{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case infoName:
			i.Name = d.text()
		case infoMode:
			i.Mode = uint32(d.int())
		case infoSize:
			i.Size = d.int()
		case infoModified:
			i.ModifiedNs = d.int()
		case infoUID:
			i.UID = uint32(d.int())
		case infoGID:
			i.GID = uint32(d.int())
		case infoOwner:
			i.Owner = d.text()
		case infoGroup:
			i.Group = d.text()
		default:
			i.decodeRest(&d)
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode file info: %w", d.err)
	}
	return nil
}

func (i *FileInfo) decodeRest(d *decoder) {
	switch d.tag {
	case infoTarget:
		i.Target = d.text()
	case infoTargetMode:
		i.TargetMode = uint32(d.int())
	case infoInode:
		i.Inode = d.int()
	case infoLinkTo:
		i.LinkTo = d.text()
	case infoOffset:
		i.Offset = d.int()
	case infoLength:
		i.Length = d.int()
	}
}

// FileDone ends an operation that succeeded, as FrameFileDone carries it.
type FileDone struct {
	// ID, Path, Size and Received are the state of an upload.
	ID, Path       string
	Size, Received int64
	// Skipped counts what FileArchive left out: sockets, devices and the like.
	Skipped int64
}

const (
	doneID = iota + 1
	donePath
	doneSize
	doneReceived
	doneSkipped
)

// MarshalBinary encodes f as a record. It never fails.
func (f FileDone) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.text(doneID, f.ID)
	enc.text(donePath, f.Path)
	enc.int(doneSize, f.Size)
	enc.int(doneReceived, f.Received)
	enc.int(doneSkipped, f.Skipped)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (f *FileDone) UnmarshalBinary(b []byte) error {
	*f = FileDone{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case doneID:
			f.ID = d.text()
		case donePath:
			f.Path = d.text()
		case doneSize:
			f.Size = d.int()
		case doneReceived:
			f.Received = d.int()
		case doneSkipped:
			f.Skipped = d.int()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode end of file operation: %w", d.err)
	}
	return nil
}

// FileCause classifies the refusal of an operation on files.
type FileCause int64

// The causes. A host that does not know one treats it as FileFailed.
const (
	FileFailed FileCause = iota
	// FileNotFound: nothing is at the path.
	FileNotFound
	// FileNotAFile: a regular file is needed and it is something else.
	FileNotAFile
	// FileNotADir: a folder is needed and it is something else.
	FileNotADir
	// FileExists: there is something at the path already.
	FileExists
	// FileNoSpace: the file system or the quota is full.
	FileNoSpace
	// FileTooLarge: the file system does not take files of that size.
	FileTooLarge
	// FileReadOnly: the file system, or the kind of file system, takes no writes.
	FileReadOnly
	// FileDenied: not even root may.
	FileDenied
	// FileBadPath: a name too long, too many symbolic links, a move into itself.
	FileBadPath
	// FileBusy: in use, as a mount point is.
	FileBusy
	// FileNoOwner and FileNoGroup: the guest has no such account or group.
	FileNoOwner
	FileNoGroup
	// FileRange: nothing of the range is in the file.
	FileRange
	// FileBadEntry: an entry of an archive that cannot be made, or must not be.
	FileBadEntry
	// FileNoUpload: no upload has that id.
	FileNoUpload
	// FileTooMany: of the thing that the order asked for there are enough.
	FileTooMany
	// FileGap: an upload is continued beyond its end.
	FileGap
	// FileOverrun: more content than announced.
	FileOverrun
	// FileIncomplete: less content than announced.
	FileIncomplete
	// FileCommitting: the upload is being committed.
	FileCommitting
)

// FileRefusal says why an operation failed, as FrameFileRefused carries it.
type FileRefusal struct {
	Cause FileCause
	// Path is what it failed at; Text is the technical cause.
	Path, Text string
	// Size is that of the file, with FileRange, and of the upload so far, with
	// FileGap.
	Size int64
}

const (
	fileRefusalCause = iota + 1
	fileRefusalPath
	fileRefusalText
	fileRefusalSize
)

// MarshalBinary encodes r as a record. It never fails.
func (r FileRefusal) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(fileRefusalCause, int64(r.Cause))
	enc.text(fileRefusalPath, r.Path)
	enc.text(fileRefusalText, r.Text)
	enc.int(fileRefusalSize, r.Size)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (r *FileRefusal) UnmarshalBinary(b []byte) error {
	*r = FileRefusal{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case fileRefusalCause:
			r.Cause = FileCause(d.int())
		case fileRefusalPath:
			r.Path = d.text()
		case fileRefusalText:
			r.Text = d.text()
		case fileRefusalSize:
			r.Size = d.int()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode file refusal: %w", d.err)
	}
	return nil
}

// FileEventKind says what happened to a file.
type FileEventKind int64

// The kinds of events.
const (
	FileCreated FileEventKind = iota + 1
	FileModified
	FileRemoved
	FileMoved
	FileAttributes
	// FileRescan: events were lost; what was known about the tree may be wrong.
	FileRescan
	// FileWatching: the watch is set up, nothing is missed from here on.
	FileWatching
)

// FileEvent is something that happened, as FrameFileEvent carries it.
type FileEvent struct {
	Kind FileEventKind
	// Path is absolute; From is the former path of what was moved.
	Path, From string
	Dir        bool
}

const (
	eventKind = iota + 1
	eventPath
	eventFrom
	eventDir
)

// MarshalBinary encodes e as a record. It never fails.
func (e FileEvent) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(eventKind, int64(e.Kind))
	enc.text(eventPath, e.Path)
	enc.text(eventFrom, e.From)
	enc.flag(eventDir, e.Dir)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (e *FileEvent) UnmarshalBinary(b []byte) error {
	*e = FileEvent{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case eventKind:
			e.Kind = FileEventKind(d.int())
		case eventPath:
			e.Path = d.text()
		case eventFrom:
			e.From = d.text()
		case eventDir:
			e.Dir = d.flag()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode file event: %w", d.err)
	}
	return nil
}
