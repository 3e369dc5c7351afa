package api

// PTYSessionState says whether the program of a terminal session runs.
type PTYSessionState string

// The states of a terminal session.
const (
	PTYRunning PTYSessionState = "running"
	// PTYExited: the program has ended; its last screen is kept for ten minutes.
	PTYExited PTYSessionState = "exited"
)

// PTYSession is a terminal session of a VM. It belongs to the guest: it goes on
// without viewers and lives through pauses and forks.
type PTYSession struct {
	// SessionID is unique in the VM.
	SessionID int64 `json:"sessionId"`
	// State is running or exited.
	State PTYSessionState `json:"state"`
	// CreatedUnix is the guest's clock at the start, in seconds since 1970.
	CreatedUnix int64 `json:"createdUnix"`
	// Cols is the number of columns, the same for all viewers.
	Cols int `json:"cols"`
	// Rows is the number of lines.
	Rows int `json:"rows"`
	// ExitCode is the exit status of a program that has ended, or 128 plus the
	// signal that ended it.
	ExitCode *int `json:"exitCode,omitempty"`
	// LinuxUser is the user that the program was started as.
	LinuxUser string `json:"linuxUser,omitempty"`
	// Slug is the name of a session that runs.
	Slug string `json:"slug,omitempty"`
	// Title is what the program has set as the window's title.
	Title string `json:"title,omitempty"`
	// Viewers is how many clients look at the session.
	Viewers int `json:"viewers"`
}

// PTYSessionList is the answer to listing sessions, the oldest first.
type PTYSessionList struct {
	Sessions []PTYSession `json:"sessions"`
}

// ClosePTYSessionResponse is the answer to closing a session.
type ClosePTYSessionResponse struct {
	// SessionID is the session that was closed.
	SessionID int64 `json:"sessionId"`
	// ExitCode is set if the program had ended before.
	ExitCode *int `json:"exitCode,omitempty"`
}

// PTYFrame is a text frame on a terminal's WebSocket. Binary frames are output
// one way and input the other.
//
// To the client: sessionInfo, always first, with SessionID, Slug and Created;
// exited with ExitCode; error with Message. From the client: resize with Cols
// and Rows; signal with Signal.
type PTYFrame struct {
	// Type says what the frame is, and with it which of the other fields it has.
	Type string `json:"type"`
	// SessionID is the session's id, in sessionInfo.
	SessionID int64 `json:"sessionId,omitempty"`
	// Slug is the session's name, in sessionInfo, if it has one.
	Slug string `json:"slug,omitempty"`
	// Created says in sessionInfo whether the session was made, rather than found.
	Created *bool `json:"created,omitempty"`
	// ExitCode is the program's exit status, in exited.
	ExitCode *int `json:"exitCode,omitempty"`
	// Message is prose for a person, in error.
	Message string `json:"message,omitempty"`
	// Cols is the number of columns, in resize.
	Cols int `json:"cols,omitempty"`
	// Rows is the number of lines, in resize.
	Rows int `json:"rows,omitempty"`
	// Signal is a name such as sigint or sigkill, in signal.
	Signal string `json:"signal,omitempty"`
}

// The types of a PTYFrame.
const (
	PTYFrameSessionInfo = "sessionInfo"
	PTYFrameExited      = "exited"
	PTYFrameError       = "error"
	PTYFrameResize      = "resize"
	PTYFrameSignal      = "signal"
)
