package teleport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// Target is the destination of an import.
type Target struct {
	Project home.Project
	ID      task.ID // of the new session
	Alias   string  // an additional name of it
	Role    string  // set if the session has a conversation
	Program string  // version
	Todos   string  // folder for its to-dos, which must not exist
}

// dirName is the folder of an imported session with the archive's files in their original form,
// for people.
const dirName = "teleported"

// Import creates a new session from an archive, which it reads twice: nothing is written before
// everything was checked. After an error nothing is left.
func Import(ctx context.Context, r io.ReadSeeker, to Target) (m Manifest, err error) {
	if m, err = Check(r); err != nil {
		return m, err
	}
	if _, err = r.Seek(0, io.SeekStart); err != nil {
		return m, fmt.Errorf("read archive: %w", err)
	}
	i := &importer{to: to, place: to.Project.Session(to.ID)}
	if err = i.begin(); err != nil {
		return m, fmt.Errorf("import session %s: %w", m.Source, err)
	}
	defer i.unlock()
	if i.m, err = extract(r, i.place.Below(), i.dir); err == nil {
		err = i.all(ctx)
	}
	if err != nil {
		return m, errors.Join(fmt.Errorf("import session %s: %w", m.Source, err), i.undo())
	}
	return i.m, nil
}

type importer struct {
	to     Target
	m      Manifest
	place  home.Session
	dir    string // of the archive's files
	unlock func()
	todos  bool // were created
}

func (i *importer) begin() (err error) {
	if _, err := i.place.Below().Lstat(i.place.Dir()); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("session %s is there already", i.to.ID), err)
	}
	if err := i.place.Ensure(); err != nil {
		return err
	}
	i.dir = filepath.Join(i.place.Dir(), dirName)
	if i.unlock, err = i.place.Lock(); err == nil {
		if err = i.place.Below().Mkdir(i.dir); err != nil {
			i.unlock()
		}
	}
	if err != nil {
		return errors.Join(err, i.undo())
	}
	return nil
}

func (i *importer) undo() error {
	err := i.place.Below().RemoveAll(i.place.Dir())
	if i.todos {
		err = errors.Join(err, saferoot.Near(i.to.Todos).RemoveAll(i.to.Todos))
	}
	return err
}

// all creates the parts of the session. Its description comes last: without it no
// session.
func (i *importer) all(ctx context.Context) error {
	lines, err := i.lines()
	if err != nil {
		return err
	}
	if err := i.transcripts(lines); err != nil {
		return err
	}
	if err := i.outputs(lines); err != nil {
		return err
	}
	if err := i.log(ctx, lines); err != nil {
		return err
	}
	if err := i.list(); err != nil {
		return err
	}
	return i.describe(len(lines))
}

// maxLine limits a line of tasks.jsonl.
const maxLine = 64 << 20

// lines reads the tasks, converted to the new session.
func (i *importer) lines() ([]line, error) {
	f, err := i.place.Below().Open(filepath.Join(i.dir, tasksName), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, maxLine)
	var out []line
	seen := map[task.ID]bool{}
	runs := map[task.RunID]bool{}
	for s.Scan() {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", tasksName, len(out)+1, err)
		}
		if err := i.adopt(&l.Task); err != nil || seen[l.Task.ID] || l.Task.Run == "" || runs[l.Task.Run] {
			return nil, errors.Join(
				fmt.Errorf("%s, line %d is no task that has ended, or is there twice", tasksName, len(out)+1),
				err,
			)
		}
		seen[l.Task.ID], runs[l.Task.Run] = true, true
		out = append(out, l)
	}
	return out, s.Err()
}

// adopt converts a record to the new session. It removes paths and processes of the old one.
func (i *importer) adopt(r *task.Record) error {
	old := task.ID(i.m.Source)
	move := func(id *task.ID) {
		if *id == old {
			*id = i.to.ID
		}
	}
	move(&r.ID) // the main agent's task
	move(&r.Parent)
	move(&r.Owner)
	if r.ID != i.to.ID {
		if _, err := task.ParseID(string(r.ID)); err != nil {
			return err
		}
	}
	if kind, ok := r.ID.Kind(); !r.Status.Terminal() || !r.Kind.BuiltIn() && r.OwnTraits == nil ||
		r.ID != i.to.ID && (!ok || kind != r.Kind && r.Kind.BuiltIn()) {
		return fmt.Errorf("task %s is %s", r.ID, r.Status)
	}
	r.Session, r.OutputFile, r.TeleportedFrom = i.to.ID, i.place.Output(r.ID), old
	r.Process, r.Checkpoint, r.Questions, r.AwaitingApproval, r.Keep = nil, nil, nil, false, false
	r.Idle, r.WaitsFor, r.Paused, r.Stopping, r.Notified = false, "", false, false, true
	if r.Worktree != nil {
		r.Worktree.Path = ""
	}
	return nil
}

// transcripts converts the conversations to the new session.
func (i *importer) transcripts(lines []line) error {
	meta := agent.Meta{
		Version:    i.to.Program,
		Cwd:        i.to.Project.Folder(),
		AgentName:  "main",
		SessionID:  string(i.to.ID),
		ForkedFrom: i.m.Source,
	}
	if err := fork(filepath.Join(i.dir, transcriptName), i.place.Transcript(), meta); err != nil {
		return err
	}
	for _, l := range lines {
		r := l.Task
		if r.ID == i.to.ID {
			continue
		}
		meta.IsSidechain, meta.AgentName, meta.AgentID, meta.ParentTask = true, r.AgentType, string(r.ID), string(r.Parent)
		if meta.ParentTask == "" {
			meta.ParentTask = string(i.to.ID)
		}
		err := fork(filepath.Join(i.dir, agentName(r.ID)), i.place.AgentTranscript(r.ID), meta)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// fork copies a conversation, and opens the copy, so that an unusable one is found here and not
// by the user.
func fork(from, to string, meta agent.Meta) error {
	if err := agent.ForkTranscript(from, to, meta); err != nil {
		return err
	}
	t, _, err := agent.OpenTranscript(to, meta)
	if err != nil {
		return err
	}
	return t.Close()
}

func (i *importer) outputs(lines []line) error {
	for _, l := range lines {
		was := l.Task.ID
		if was == i.to.ID {
			was = task.ID(i.m.Source)
		}
		from := filepath.Join(i.dir, outputName(was))
		if err := i.place.Below().Rename(from, i.place.Output(l.Task.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// log writes the tasks into a new log. All notifications count as delivered.
func (i *importer) log(ctx context.Context, lines []line) (err error) {
	j, err := journal.Open(i.place.DB(), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	var entries []lifecycle.Entry
	for _, l := range lines {
		r := l.Task
		at := r.CreateTime
		if r.EndTime != nil {
			at = *r.EndTime
		}
		entries = append(entries, lifecycle.Entry{Verb: verb(r.Status), At: at, Task: r, Answer: l.Answer,
			Notification: &lifecycle.Notification{Run: r.Run, Task: r.ID, Owner: r.Owner, Priority: r.Priority, Acked: true}})
	}
	_, errs := j.AppendAll(ctx, entries)
	return errors.Join(errs...)
}

func verb(s task.Status) task.Verb {
	return map[task.Status]task.Verb{task.Completed: task.Complete, task.Failed: task.Fail, task.Killed: task.Stop}[s]
}

// list writes the to-dos to the list of the new session.
func (i *importer) list() error {
	from := filepath.Join(i.dir, "todos")
	if _, err := i.place.Below().Lstat(from); errors.Is(err, fs.ErrNotExist) || i.to.Todos == "" {
		return nil
	}
	all := filepath.Dir(i.to.Todos)
	top := saferoot.Near(i.to.Todos)
	if err := top.Mkdir(all); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := top.Lstat(i.to.Todos); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is a to-do list at %s already", i.to.Todos)
	}
	mine, err := i.place.Below().Folder(i.dir)
	if err != nil {
		return err
	}
	defer mine.Close()
	lists, err := top.Folder(all)
	if err != nil {
		return err
	}
	defer lists.Close()
	i.todos = true
	return mine.Rename(filepath.Base(from), lists, filepath.Base(i.to.Todos))
}

func (i *importer) describe(tasks int) error {
	now := time.Now().UTC()
	info := control.Info{
		Session:        i.to.ID,
		Project:        i.to.Project.Folder(),
		Title:          i.m.Title,
		Role:           i.to.Role,
		Version:        i.to.Program,
		Dir:            i.place.Dir(),
		StartTime:      now,
		EndTime:        &now,
		Tasks:          control.Counts{Total: tasks},
		Aliases:        []string{i.to.Alias, i.m.Source},
		TeleportedFrom: i.m.Source,
	}
	raw, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	return i.place.WriteInfo(append(raw, '\n'))
}
