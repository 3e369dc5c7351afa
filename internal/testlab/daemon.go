package testlab

// Daemon is the pid of the daemon that runs now.
func (l *Lab) Daemon() int {
	l.tb.Helper()
	if l.daemon == nil {
		l.tb.Fatal("no daemon runs")
	}
	return l.daemon.Process.Pid
}
