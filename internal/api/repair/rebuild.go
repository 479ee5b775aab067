package repair

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/task"
)

// left has the files of a task beside the log.
type left struct {
	id     task.ID
	files  []string // relative to the folder of the session
	bytes  int64    // of its output
	first  time.Time
	last   time.Time
	talk   string // its transcript
	remote bool   // it has a sidecar
}

// Kinds of files of a task, by the parts of their names around its ID.
func traces() [][3]string {
	return [][3]string{{"tasks", "", ".output"}, {"subagents", "agent-", ".jsonl"}, {"remote", "", ".json"}}
}

// files finds the files of tasks, in the order of their IDs.
func (r *repair) files() ([]left, error) {
	found := map[task.ID]*left{}
	for _, t := range traces() {
		folder, err := r.folder.Folder(t[0])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		names, err := folder.Names()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			id, ok := r.owner(name, t[1], t[2])
			info, err := folder.Lstat(name)
			if !ok || err != nil || !info.Mode().IsRegular() {
				continue
			}
			l := found[id]
			if l == nil {
				l = &left{id: id, first: info.ModTime(), last: info.ModTime()}
				found[id] = l
			}
			l.add(path.Join(t[0], name), info)
		}
	}
	out := make([]left, 0, len(found))
	for _, l := range found {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b left) int { return cmp.Compare(a.id, b.id) })
	return out, nil
}

func (l *left) add(file string, info fs.FileInfo) {
	l.files = append(l.files, file)
	if info.ModTime().Before(l.first) {
		l.first = info.ModTime()
	}
	if info.ModTime().After(l.last) {
		l.last = info.ModTime()
	}
	switch {
	case strings.HasSuffix(file, ".output"):
		l.bytes = info.Size()
	case strings.HasSuffix(file, ".jsonl"):
		l.talk = file
	default:
		l.remote = true
	}
}

// owner returns the task of a file name.
func (r *repair) owner(name, before, behind string) (task.ID, bool) {
	name, ok := strings.CutPrefix(name, before)
	name, also := strings.CutSuffix(name, behind)
	if !ok || !also {
		return "", false
	}
	if name == string(r.place.ID()) {
		return r.place.ID(), true
	}
	id, err := task.ParseID(name)
	return id, err == nil
}

// rebuild makes records of the tasks that the new log does not have.
func (r *repair) rebuild(ctx context.Context, files []left) (out []Rebuilt, err error) {
	j, err := journal.Open(r.path(fresh), journal.Options{Power: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	var entries []lifecycle.Entry
	var table process.Table
	for some := range slices.Chunk(files, 500) {
		ids := make([]task.ID, len(some))
		for i, l := range some {
			ids[i] = l.id
		}
		records, err := j.Newest(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			if slices.ContainsFunc(records, func(r task.Record) bool { return r.ID == l.id }) {
				continue
			}
			e := r.entry(l)
			b := Rebuilt{ID: l.id, Kind: e.Task.Kind, From: l.files, Lives: r.lives(l.id, e.Task.Kind, &table)}
			if b.Lives {
				e = unknown(e)
			}
			entries, out = append(entries, e), append(out, b)
		}
	}
	_, errs := j.AppendAll(ctx, entries)
	return out, errors.Join(errs...)
}

// lives reports whether a command runs with the mark of a task, or has left an exit file. Only
// a kept one can without a host.
func (r *repair) lives(id task.ID, kind task.Kind, table *process.Table) bool {
	if kind.Traits().Work != task.ByCommand {
		return false
	}
	if _, err := process.ReadDeparture(r.place.ExitFile(id), process.Identity{}); err == nil {
		return true
	}
	_, ok := process.Leader(table.Read(), process.MarkTask, string(id))
	return ok
}

// unknown returns the record of a kept command that may have begun: the next host finds it by
// its mark, or by its exit file.
func unknown(e lifecycle.Entry) lifecycle.Entry {
	r := &e.Task
	r.Status, r.Keep, r.Notified = task.Pending, true, false
	r.StartTime, r.EndTime, r.Cause = nil, nil, nil
	return lifecycle.Entry{Verb: task.Create, At: e.At, Task: e.Task}
}

// entry returns the end of a task that is known only from its files. It has no owner to notify.
func (r *repair) entry(l left) lifecycle.Entry {
	kind, _ := l.id.Kind()
	if l.id == r.place.ID() {
		kind = task.MainKind
	}
	start, end := l.first.UTC(), l.last.UTC()
	rec := task.Record{
		ID:           l.id,
		Run:          task.NewRunID(),
		Kind:         kind,
		Status:       task.Killed,
		Session:      r.place.ID(),
		Depth:        1,
		Backgrounded: true,
		Notified:     true,
		Description:  "(its record was lost)",
		Cwd:          r.place.Project().Folder(),
		OutputFile:   r.place.Output(l.id),
		OutputBytes:  l.bytes,
		Cause: &task.Cause{
			Actor:  task.ByUnknown,
			Reason: task.ReasonLost,
			Detail: "its record was lost with a damaged log",
		},
	}
	switch {
	case l.id == r.place.ID():
		rec.AgentType = task.MainSession
	case kind.IsAgent():
		rec.Mode = string(policy.Plan) // its mode is unknown: a further run has the narrowest
	}
	if name, began := r.firstLine(l.talk); name != "" && rec.AgentType == "" {
		rec.AgentType, start = name, began
	}
	if l.remote {
		if s, err := remote.ReadSidecar(r.place.RemoteFile(l.id)); err == nil {
			rec.Progress = &task.Progress{Remote: &task.RemoteSession{ID: s.Session, Type: s.Type}}
			rec.Cause.Detail += "; session " + s.Session + ", in which it worked elsewhere, may go on"
		}
	}
	rec.CreateTime, rec.StartTime, rec.EndTime = start, &start, &end
	return lifecycle.Entry{Verb: task.Stop, At: end, Task: rec, Notification: &lifecycle.Notification{Run: rec.Run,
		Task: rec.ID, Acked: true}}
}

// firstLine reads the task of a transcript and when it began.
func (r *repair) firstLine(name string) (agent string, at time.Time) {
	if name == "" {
		return "", at
	}
	_ = r.heads(name, func(line []byte) bool { // an unreadable transcript gives nothing
		var l struct {
			Agent string `json:"agent_name"`
			At    int64  `json:"timestamp"` // ms since 1970
		}
		if json.Unmarshal(line, &l) == nil {
			agent, at = l.Agent, time.UnixMilli(l.At).UTC()
		}
		return false
	})
	return agent, at
}

// highestMail returns the highest sequence number of mail in the transcripts of the session. Mail
// with such a number would count as delivered.
func (r *repair) highestMail() (top task.Seq, err error) {
	names := []string{"transcript.jsonl"}
	if folder, err := r.folder.Folder("subagents"); err == nil {
		defer folder.Close()
		all, err := folder.Names()
		if err != nil {
			return 0, err
		}
		for _, n := range all {
			names = append(names, path.Join("subagents", n))
		}
	}
	for _, name := range names {
		err := r.heads(name, func(line []byte) bool {
			for _, n := range numbersIn(line) {
				if n < 1<<40 { // as when a log is read
					top = max(top, task.Seq(n))
				}
			}
			return true
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return top, nil
}

// numbersIn reads the field mail of a line, which stands before the message. Older files
// call it letters.
func numbersIn(line []byte) (numbers []int64) {
	line, _, _ = bytes.Cut(line, []byte(`"message":`))
	_, rest, ok := bytes.Cut(line, []byte(`"mail":`))
	if !ok {
		_, rest, ok = bytes.Cut(line, []byte(`"letters":`))
	}
	end := bytes.IndexByte(rest, ']')
	if !ok || end < 0 || json.Unmarshal(rest[:end+1], &numbers) != nil {
		return nil
	}
	return numbers
}

// mostOfLine limits how much of a line of a transcript is read: its message, which may be long,
// comes last.
const mostOfLine = 4 << 20

// heads reads the lines of a transcript, only the beginning of long ones, until each returns
// that it is enough.
func (r *repair) heads(name string, each func(line []byte) bool) error {
	f, err := r.place.Below().Open(r.path(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	in := bufio.NewReader(f)
	var line []byte
	for {
		part, more, err := in.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line = append(line, part[:min(len(part), mostOfLine-len(line))]...)
		if more {
			continue
		}
		if !each(line) {
			return nil
		}
		line = line[:0]
	}
}
