package home

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/task"
)

// ErrLocked is returned when another process holds a lock.
var ErrLocked = errors.New("in use by another process")

// Session is the place of one session. Make it with [Project.Session]. Its
// methods that take an ID panic on text that is no single harmless path
// element: IDs from outside go through [task.ParseID] first.
type Session struct {
	project Project
	id      task.ID
	dir     string
}

// ID is the session's own.
func (s Session) ID() task.ID { return s.id }

// Project is the project that the session belongs to.
func (s Session) Project() Project { return s.project }

// Dir holds everything of the session but its socket.
func (s Session) Dir() string { return s.dir }

// DB is the event log.
func (s Session) DB() string { return filepath.Join(s.dir, "session.db") }

// InfoFile is what a listing of sessions needs.
func (s Session) InfoFile() string { return filepath.Join(s.dir, "session.json") }

// LockFile is locked while a host serves the session.
func (s Session) LockFile() string { return filepath.Join(s.dir, "lock") }

// Transcript is that of the main agent.
func (s Session) Transcript() string { return filepath.Join(s.dir, "transcript.jsonl") }

// AgentTranscript is that of a subagent.
func (s Session) AgentTranscript(id task.ID) string {
	return filepath.Join(s.dir, "subagents", "agent-"+element(string(id))+".jsonl")
}

// Tasks is the directory of output files.
func (s Session) Tasks() string { return filepath.Join(s.dir, "tasks") }

// Output is what a task prints.
func (s Session) Output(id task.ID) string { return s.tasks(id, ".output") }

// OutputLink is a link to the transcript of an agent.
func (s Session) OutputLink(id task.ID) string { return s.tasks(id, ".jsonl") }

// ExitFile is where the end of a task is left for the next host.
func (s Session) ExitFile(id task.ID) string { return s.tasks(id, ".exit") }

// KeysFile is the pipe through which is typed into the terminal of a command.
func (s Session) KeysFile(id task.ID) string { return s.tasks(id, ".keys") }

// RemoteFile is the sidecar of a remote task.
func (s Session) RemoteFile(id task.ID) string {
	return filepath.Join(s.dir, "remote", element(string(id))+".json")
}

func (s Session) tasks(id task.ID, ext string) string {
	return filepath.Join(s.dir, "tasks", element(string(id))+ext)
}

// Ensure creates the directories of the session.
func (s Session) Ensure() error {
	if err := s.project.Ensure(); err != nil {
		return err
	}
	for _, dir := range []string{"", "tasks", "subagents", "remote"} {
		if err := ensure(filepath.Join(s.dir, dir)); err != nil {
			return fmt.Errorf("open session %s: %w", s.id, err)
		}
	}
	return nil
}

// Lock takes the session for this process, or returns [ErrLocked]. A lock ends
// with the process that holds it, so a file left by a dead one never blocks.
// The directory of the session must exist.
func (s Session) Lock() (unlock func(), err error) { return lock(s.LockFile()) }

func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	fd := int(f.Fd())
	for {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, ErrLocked)
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() {
		// Closing alone would not do: a child between fork and exec still has
		// the descriptor, and with it the lock.
		_ = unix.Flock(fd, unix.LOCK_UN)
		_ = f.Close()
	}, nil
}

// element refuses what is not one harmless path element.
func element(name string) string {
	ok := name != "" && len(name) <= 64
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	if !ok {
		panic(fmt.Sprintf("home: %.40q is no name of a file (check IDs with task.ParseID)", name))
	}
	return name
}
