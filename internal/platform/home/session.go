package home

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// Session is the place of one session. Make it with [Project.Session]. Its
// methods that take an ID panic on text that is not a single harmless path
// element: IDs from outside go through [task.ParseID] first.
type Session struct {
	project Project
	id      task.ID
	dir     string
}

// ID returns the ID of the session.
func (s Session) ID() task.ID { return s.id }

// Project returns the project that the session belongs to.
func (s Session) Project() Project { return s.project }

// Dir holds all files of the session except its socket.
func (s Session) Dir() string { return s.dir }

// DB is the event log.
func (s Session) DB() string { return filepath.Join(s.dir, "session.db") }

// InfoFile holds the data for a listing of sessions.
func (s Session) InfoFile() string { return filepath.Join(s.dir, "session.json") }

// LockFile is locked while a host serves the session.
func (s Session) LockFile() string { return filepath.Join(s.dir, "lock") }

// Transcript is the transcript of the main agent.
func (s Session) Transcript() string { return filepath.Join(s.dir, "transcript.jsonl") }

// AgentTranscript is the transcript of a subagent.
func (s Session) AgentTranscript(id task.ID) string {
	return filepath.Join(s.dir, "subagents", "agent-"+element(string(id))+".jsonl")
}

// Tasks is the directory of output files.
func (s Session) Tasks() string { return filepath.Join(s.dir, "tasks") }

// Scratch is the directory of files that live as long as one call of a tool. Commands in the sandbox
// of the session may write there.
func (s Session) Scratch() string { return filepath.Join(s.dir, "scratch") }

// Output is the output file of a task.
func (s Session) Output(id task.ID) string { return s.tasks(id, ".output") }

// OutputLink is a link to the transcript of an agent.
func (s Session) OutputLink(id task.ID) string { return s.tasks(id, ".jsonl") }

// ExitFile holds the exit of a task for the next host.
func (s Session) ExitFile(id task.ID) string { return s.tasks(id, ".exit") }

// KeysFile is the pipe that leads to the terminal of a command.
func (s Session) KeysFile(id task.ID) string { return s.tasks(id, ".keys") }

// Returned returns the folder for the changes of a task at a worker in its copy of a folder without git.
// It makes the parent of that folder.
func (s Session) Returned(name string) (string, error) {
	dir := filepath.Join(s.dir, "returned")
	if err := s.Below().Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make folder for what comes back: %w", err)
	}
	return filepath.Join(dir, element(name)), nil
}

// HookOutputs is the directory of outputs of hooks that were too long for the
// memory. It exists only after such an output.
func (s Session) HookOutputs() string { return filepath.Join(s.dir, hookOutputs) }

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
	if err := s.ensure(); err != nil {
		return fmt.Errorf("open session %s: %w", s.id, err)
	}
	return nil
}

func (s Session) ensure() error {
	all, err := s.project.root.Below().Folder(s.project.dir)
	if err != nil {
		return err
	}
	defer all.Close()
	mine, err := ensure(all, string(s.id))
	if err != nil {
		return err
	}
	defer mine.Close()
	subs := []string{"tasks", "subagents", "remote", "scratch"}
	if err := mkdirs(mine, subs...); err != nil { // together, and so with one sync
		return err
	}
	for _, name := range subs {
		sub, err := ensure(mine, name)
		if err != nil {
			return err
		}
		sub.Close()
	}
	return nil
}

// Below opens files in the state directory, as [Root.Below] does.
func (s Session) Below() saferoot.Dir { return s.project.root.Below() }

// maxInfo bounds a session.json.
const maxInfo = 4 << 20

// ReadInfo reads session.json.
func (s Session) ReadInfo() ([]byte, error) { return s.project.root.ReadFile(s.InfoFile(), maxInfo) }

// WriteInfo replaces session.json.
func (s Session) WriteInfo(data []byte) error { return s.project.root.WriteAtomic(s.InfoFile(), data) }

// Lock takes the session for this process, or returns [ErrLocked]. A lock ends
// with the process that holds it, so a file left by a dead one never blocks.
// The directory of the session must exist.
func (s Session) Lock() (unlock func(), err error) { return LockFile(s.Below(), s.LockFile()) }

// element returns name, and panics unless it is one harmless path element.
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
