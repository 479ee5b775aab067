package teleport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// Source is the session to export.
type Source struct {
	Place home.Session
	Info  control.Info
	Todos string // folder of its to-dos; empty, or missing: none
	// Definition returns the file of a type of agent, or "".
	Definition func(agentType string) string
}

// Options of an export.
type Options struct {
	Program string            // version
	Cwd     bool              // includes the name of the folder
	Env     map[string]string // names of variables to include
	Secrets []Secret          // values that are left out wherever they occur
}

// line is a line of tasks.jsonl.
type line struct {
	Task   task.Record `json:"task"`
	Answer string      `json:"answer,omitempty"`
}

// ErrRunning is returned for a session with a running host or task.
var ErrRunning = errors.New("the session is at work")

// Export writes the archive of an ended session.
func Export(ctx context.Context, w io.Writer, src Source, opt Options) (m Manifest, err error) {
	defer annotate.Error(&err, "export session %s", src.Place.ID())
	unlock, err := src.Place.Lock()
	if errors.Is(err, home.ErrLocked) {
		return m, ErrRunning
	}
	if err != nil {
		return m, err
	}
	defer unlock()
	dir, err := os.MkdirTemp("", "drover-export-*")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e := &exporter{src: src, dir: dir, red: NewRedactor(opt.Secrets)}
	if err := e.all(ctx); err != nil {
		return m, err
	}
	for name, value := range opt.Env {
		if IsSecret(name) || !bytes.Equal(NewRedactor(opt.Secrets).Text([]byte(value)), []byte(value)) {
			return m, fmt.Errorf("the variable %s holds a secret, and cannot travel", name)
		}
	}
	m = Manifest{
		Format:     format,
		Program:    opt.Program,
		Created:    time.Now().UTC().Truncate(time.Second),
		Source:     string(src.Place.ID()),
		Agent:      "main",
		Title:      string(e.red.Text([]byte(src.Info.Title))),
		Env:        opt.Env,
		Transcript: transcriptName,
		Secrets:    e.red.n,
	}
	if opt.Cwd {
		m.Cwd = src.Info.Project
	}
	for _, name := range e.names {
		m.Files = append(m.Files, File{Name: name})
	}
	return write(w, m, dir)
}

// exporter collects the files of an archive in a folder.
type exporter struct {
	src   Source
	dir   string
	red   *Redactor
	names []string
}

func (e *exporter) all(ctx context.Context) error {
	a, err := archive.Open(ctx, e.src.Place, e.src.Info)
	if err != nil {
		return err
	}
	defer a.Close() // it was opened for reading only
	page, err := a.List(ctx, control.ListRequest{All: true})
	if err != nil {
		return err
	}
	tasks := page.Tasks
	slices.Reverse(tasks) // oldest first
	for _, r := range tasks {
		if !r.Status.Terminal() {
			return fmt.Errorf("%w: task %s is %s", ErrRunning, r.ID, r.Status)
		}
	}
	if err := e.copy(transcriptName, e.src.Place.Below(), e.src.Place.Transcript()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("it has no conversation")
		}
		return err
	}
	info := e.src.Info
	info.PID, info.Socket, info.Dir = 0, "", ""
	raw, err := json.Marshal(info)
	if err != nil {
		return err
	}
	if err := e.put(infoName, bytes.NewReader(raw)); err != nil {
		return err
	}
	if err := e.tasks(ctx, a, tasks); err != nil {
		return err
	}
	if err := e.todos(); err != nil {
		return err
	}
	return e.definitions(tasks)
}

// tasks writes the records, answers and outputs of tasks.
func (e *exporter) tasks(ctx context.Context, a *archive.Archive, tasks []task.Record) error {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for _, r := range tasks {
		l := line{Task: r}
		if r.Traits().Work != task.ByCommand { // the answer of a command is its output
			got, err := control.WholeResult(ctx, a, string(r.ID))
			if err != nil {
				return err
			}
			l.Answer = got.Text
		}
		l.Task.Checkpoint, l.Task.Process = nil, nil
		if err := enc.Encode(l); err != nil {
			return err
		}
		for name, path := range map[string]string{agentName(r.ID): e.src.Place.AgentTranscript(r.ID),
			outputName(r.ID): e.src.Place.Output(r.ID)} {
			if CheckName(name) != nil || name == agentName(r.ID) && r.ID == e.src.Place.ID() {
				continue // of the main agent's task
			}
			if err := e.copy(name, e.src.Place.Below(), path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return e.put(tasksName, &lines)
}

func (e *exporter) todos() error {
	top := saferoot.Near(e.src.Todos)
	files, err := top.Names(e.src.Todos)
	if e.src.Todos == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if name := "todos/" + f; CheckName(name) == nil {
			if err := e.copy(name, top, filepath.Join(e.src.Todos, f)); err != nil {
				return err
			}
		}
	}
	return nil
}

// definitions includes the definitions of the agents that were used.
func (e *exporter) definitions(tasks []task.Record) error {
	if e.src.Definition == nil {
		return nil
	}
	for _, r := range tasks {
		name := "definitions/" + r.AgentType + ".md"
		if r.AgentType == "" || CheckName(name) != nil || slices.Contains(e.names, name) {
			continue
		}
		if path := e.src.Definition(r.AgentType); strings.HasSuffix(path, ".md") {
			if err := e.copy(name, saferoot.Dir(filepath.Dir(path)), path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// copy includes a regular file below a trusted folder, without secrets.
func (e *exporter) copy(name string, top saferoot.Dir, path string) error {
	f, err := top.Open(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s is no regular file", path), err)
	}
	return e.put(name, f)
}

func (e *exporter) put(name string, from io.Reader) error {
	path := filepath.Join(e.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(e.red.copy(f, from), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	e.names = append(e.names, name)
	return nil
}
