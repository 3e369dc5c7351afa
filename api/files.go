package api

import "time"

// The reasons of errors about files in a guest.
const (
	// ReasonFileNotFound: nothing is at the path in the guest.
	ReasonFileNotFound Reason = "file_not_found"
	// ReasonNotAFile: a regular file is needed, and the path leads to a folder, a
	// FIFO, a socket or a device.
	ReasonNotAFile Reason = "not_a_file"
	// ReasonNotADirectory: a folder is needed and the path, or a part of it, is none.
	ReasonNotADirectory Reason = "not_a_directory"
	// ReasonFileExists: something is at the path already.
	ReasonFileExists Reason = "file_exists"
	// ReasonGuestDiskFull: the guest's file system or a quota in it is full.
	ReasonGuestDiskFull Reason = "guest_disk_full"
	// ReasonReadOnlyFileSystem: the guest's file system takes no writes.
	ReasonReadOnlyFileSystem Reason = "read_only_file_system"
	// ReasonFileDenied: the guest's kernel refuses it even to root.
	ReasonFileDenied Reason = "file_denied"
	// ReasonFileBusy: the guest is using the file in a way that excludes this.
	ReasonFileBusy Reason = "file_busy"
	// ReasonFileChanged: the file changed while it was read.
	ReasonFileChanged Reason = "file_changed"
	// ReasonChecksumMismatch: the content is not what the checksum says.
	ReasonChecksumMismatch Reason = "checksum_mismatch"
	// ReasonUploadNotFound: no upload has that id, or it has expired.
	ReasonUploadNotFound Reason = "upload_not_found"
	// ReasonUploadGap: a chunk begins beyond what was received.
	ReasonUploadGap Reason = "upload_gap"
	// ReasonUploadIncomplete: less was received than the upload's size.
	ReasonUploadIncomplete Reason = "upload_incomplete"
	// ReasonUploadCommitting: the upload is being committed.
	ReasonUploadCommitting Reason = "upload_committing"
	// ReasonTooMany: as many as allowed are open already.
	ReasonTooMany Reason = "too_many"
	// ReasonBadArchive: the archive is malformed, or an entry must not be made.
	ReasonBadArchive Reason = "bad_archive"
)

// FileKind is the type of a file itself: a symbolic link is not followed.
type FileKind string

// The types of files.
const (
	FileKindFile      FileKind = "file"
	FileKindDirectory FileKind = "directory"
	FileKindSymlink   FileKind = "symlink"
	FileKindFifo      FileKind = "fifo"
	FileKindSocket    FileKind = "socket"
	FileKindDevice    FileKind = "device"
)

// DirEntry is one entry of a folder.
type DirEntry struct {
	// Name is relative to the folder that was asked for; with recursive it is a
	// path. Bytes that are not UTF-8 are replaced.
	Name string `json:"name"`
	// Kind is the entry's own type.
	Kind FileKind `json:"kind"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Permissions are four octal digits, for example "0644".
	Permissions string `json:"permissions"`
	// Owner and Group are names, or numbers where the guest has no name.
	Owner string `json:"owner"`
	Group string `json:"group"`
	// Modified is when the content last changed.
	Modified time.Time `json:"modified"`
	// Target is what a symbolic link says.
	Target string `json:"target,omitempty"`
}

// DirList is the response to a listing of a folder, sorted by name.
type DirList struct {
	Entries []DirEntry `json:"entries"`
}

// FileExists is the response to the question whether something is at a path.
type FileExists struct {
	// Exists is true for a symbolic link that leads nowhere, too.
	Exists bool `json:"exists"`
}

// FileStat describes a file itself: a symbolic link is not followed.
type FileStat struct {
	// Size is in bytes.
	Size int64 `json:"size"`
	// IsFile, IsDirectory and IsSymlink are all false for FIFOs, sockets and devices.
	IsFile      bool `json:"isFile"`
	IsDirectory bool `json:"isDirectory"`
	IsSymlink   bool `json:"isSymlink"`
	// Permissions are four octal digits, for example "0644".
	Permissions string `json:"permissions"`
	// Owner and Group are names, or numbers where the guest has no name.
	Owner string `json:"owner"`
	Group string `json:"group"`
	// Modified is when the content last changed.
	Modified time.Time `json:"modified"`
	// Kind is the type in one word.
	Kind FileKind `json:"kind"`
	// UID and GID are the numbers of owner and group.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Target is what a symbolic link says, TargetKind what it leads to in the
	// end; TargetKind is absent if that is nothing.
	Target     string   `json:"target,omitempty"`
	TargetKind FileKind `json:"targetKind,omitempty"`
}

// MkdirRequest is the body of POST /v5/vms/{id}/fs/mkdir.
type MkdirRequest struct {
	// Path is absolute. Folders above it are made too, and one that exists is fine.
	Path string `json:"path"`
	// Mode is a whole number (493) or octal digits in a string ("0755"); null means 0755.
	Mode any `json:"mode,omitempty"`
	// Owner and Group are names or numbers of the guest; omitted means those of
	// the account that commands run as.
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
}

// WriteFileRequest is the JSON body of PUT /v5/vms/{id}/fs/write.
type WriteFileRequest struct {
	// Path is absolute. Folders above it are made if they are missing.
	Path string `json:"path"`
	// Content is the whole new content.
	Content string `json:"content"`
	// Encoding is "utf8" (default) or "base64".
	Encoding string `json:"encoding,omitempty"`
	// Mode is a whole number (420) or octal digits in a string ("0644"); null
	// keeps that of a file that exists, and means 0600 for a new one.
	Mode any `json:"mode,omitempty"`
	// SHA256 is that of the content in hexadecimal; it is verified.
	SHA256 string `json:"sha256,omitempty"`
	// Owner and Group are names or numbers of the guest; omitted keeps those of a
	// file that exists, and means the account that commands run as for a new one.
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
}

// CopyFileRequest is the body of POST /v5/vms/{id}/fs/copy and /fs/move.
type CopyFileRequest struct {
	// From and To are absolute; folders above To are made. Trees go as a whole.
	From string `json:"from"`
	To   string `json:"to"`
	// Overwrite allows a file to be at To. A folder that is not empty is never
	// replaced by a move; a copy goes into it.
	Overwrite bool `json:"overwrite,omitempty"`
}

// ChmodRequest is the body of POST /v5/vms/{id}/fs/chmod.
type ChmodRequest struct {
	// Path is absolute; a symbolic link is followed.
	Path string `json:"path"`
	// Mode is a whole number (493) or octal digits in a string ("0755").
	Mode any `json:"mode"`
	// Recursive changes everything below, too; symbolic links there are left alone.
	Recursive bool `json:"recursive,omitempty"`
}

// ChownRequest is the body of POST /v5/vms/{id}/fs/chown.
type ChownRequest struct {
	// Path is absolute; a symbolic link is followed, unless recursive is set.
	Path string `json:"path"`
	// Owner and Group are names or numbers of the guest; one that is omitted stays.
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
	// Recursive changes everything below, too.
	Recursive bool `json:"recursive,omitempty"`
}

// CreateUploadRequest is the body of POST /v5/vms/{id}/fs/uploads.
type CreateUploadRequest struct {
	// Path is absolute. Folders above it are made if they are missing.
	Path string `json:"path"`
	// Size is the length of the whole content in bytes.
	Size int64 `json:"size"`
	// SHA256 is that of the content in hexadecimal; commit verifies it.
	SHA256 string `json:"sha256,omitempty"`
	// Mode is a whole number (420) or octal digits in a string ("0644"); null
	// keeps that of a file that exists, and means 0600 for a new one.
	Mode any `json:"mode,omitempty"`
	// Owner and Group are names or numbers of the guest; omitted keeps those of a
	// file that exists, and means the account that commands run as for a new one.
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
}

// Upload is the state of an upload in parts.
type Upload struct {
	// UploadID names it in paths.
	UploadID string `json:"uploadId"`
	// Path is the file that it will replace.
	Path string `json:"path"`
	// Size is the length of the whole content, ReceivedBytes what is there of it:
	// the offset of the next chunk.
	Size          int64 `json:"size"`
	ReceivedBytes int64 `json:"receivedBytes"`
}

// FileEventType says what happened to a file.
type FileEventType string

// The types of events.
const (
	// FileWatching is the first event: nothing is missed from here on.
	FileWatching   FileEventType = "watching"
	FileCreated    FileEventType = "created"
	FileModified   FileEventType = "modified"
	FileRemoved    FileEventType = "removed"
	FileMoved      FileEventType = "moved"
	FileAttributes FileEventType = "attributes"
	// FileRescan: events were lost; look at the tree again.
	FileRescan FileEventType = "rescan"
	// FileWatchError is the last event of a watch that failed.
	FileWatchError FileEventType = "error"
)

// FileEvent is one line of the response to a watch.
type FileEvent struct {
	// Type says what happened.
	Type FileEventType `json:"type"`
	// Path is absolute; From is the former path of what was moved.
	Path string `json:"path,omitempty"`
	From string `json:"from,omitempty"`
	// IsDirectory is true for folders.
	IsDirectory bool `json:"isDirectory,omitempty"`
	// Error is set on the last event of a watch that failed.
	Error *Error `json:"error,omitempty"`
}
