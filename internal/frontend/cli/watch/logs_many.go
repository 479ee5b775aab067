package watch

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"strings"
	"sync"
	"syscall"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	maxFollowed = 200 // tasks that are followed at once
	prefixChars = 20  // of a name before a line
)

// manyLogs is what `drover logs` is asked for when it prints several outputs.
type manyLogs struct {
	refs     []string
	all      bool   // all live tasks, and tasks that start later
	session  string // only of this one; empty: of the project
	sessions bool   // of all projects
	follow   bool
	tail     int
	raw      bool
}

// joined prints several outputs line by line, each with the name of its task.
type joined struct {
	a      *app
	many   manyLogs
	colour bool
	plain  bool // lines are made harmless for a terminal

	group sync.WaitGroup // one per task that is followed; printMany waits
	ended chan struct{}  // capacity 1: a task is followed no more

	mu    sync.Mutex // guards what follows, and is held over the write of a line
	width int        // of the longest name so far
	tasks map[task.RunID]bool
	live  int   // tasks that are followed
	err   error // of the first write that failed
	stop  context.CancelCauseFunc
}

// printMany prints the outputs until all tasks have ended.
func (a *app) printMany(ctx context.Context, m manyLogs) error {
	terminal := a.IsTerminal(a.Stdout)
	ctx, stop := console.WhileRead(ctx, a.Stdout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	j := &joined{a: a, many: m, colour: a.Colored(), plain: terminal && !m.raw, ended: make(chan struct{}, 1),
		tasks: map[task.RunID]bool{}, stop: cancel}
	defer j.group.Wait()
	defer cancel(nil)
	var err error
	if m.all || m.session != "" {
		err = j.followAll(ctx)
	} else {
		err = j.followNamed(ctx)
	}
	if errors.Is(context.Cause(ctx), syscall.EPIPE) {
		return nil
	}
	return err
}

func (j *joined) followNamed(ctx context.Context) error {
	tasks, err := j.a.ResolveAll(ctx, j.many.refs, j.many.sessions)
	if err != nil {
		return err
	}
	for _, f := range tasks {
		j.widen(f.Record)
	}
	for _, f := range tasks {
		j.join(ctx, f)
		if !j.many.follow {
			j.group.Wait() // one after the other
		}
	}
	j.group.Wait()
	return j.failed(ctx)
}

// failed is why no more is printed.
func (j *joined) failed(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	return context.Cause(ctx)
}

// followAll follows all live tasks, and tasks that start later, until none is live.
func (j *joined) followAll(ctx context.Context) error {
	if j.many.session != "" {
		known, err := j.a.Known(ctx, false, true)
		if err != nil {
			return err
		}
		s, err := console.PickSession(known, j.many.session)
		if err != nil {
			return err
		}
		j.many.session, j.many.sessions = string(s.Info().Session), true
	}
	some, err := j.joinLive(ctx)
	if err != nil {
		return err
	}
	if !some {
		return j.a.Println("No tasks are running.")
	}
	inner, cancel := context.WithCancel(ctx)
	later := make(chan error, 1)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		later <- j.a.FollowSessions(inner, j.many.sessions, console.WatchTick, func(ctx context.Context, s console.Session) {
			if !j.means(s) {
				return
			}
			j.a.eachEvent(ctx, s, func(e task.Event) bool {
				if !e.Task.Status.Terminal() {
					j.join(ctx, console.Found{Session: s, Record: e.Task})
				}
				return true
			})
		})
	})
	for {
		select {
		case <-j.ended:
			if some, err := j.joinLive(ctx); err != nil || !some && j.alive() == 0 {
				return errors.Join(err, j.failed(ctx))
			}
		case err := <-later:
			return errors.Join(j.failed(ctx), err)
		}
	}
}

func (j *joined) means(s console.Session) bool {
	return j.many.session == "" || string(s.Info().Session) == j.many.session
}

func (j *joined) alive() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.live
}

// joinLive follows the tasks that are live now, and reports whether it found any.
func (j *joined) joinLive(ctx context.Context) (some bool, err error) {
	records, _, err := j.a.List(ctx, false, j.many.sessions, 0)
	if err != nil {
		return false, err
	}
	known, err := j.a.Known(ctx, true, j.many.sessions)
	if err != nil {
		return false, err
	}
	for _, s := range known {
		for _, r := range records {
			if r.Session == s.Info().Session && j.means(s) {
				some = true
				j.join(ctx, console.Found{Session: s, Record: r})
			}
		}
	}
	return some, nil
}

// join follows a run of a task, once.
func (j *joined) join(ctx context.Context, f console.Found) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.tasks[f.Record.Run] || f.Record.OutputFile == "":
		return
	case j.live >= maxFollowed:
		j.tasks[f.Record.Run] = true
		j.a.Note("the output of %s is left out: %d tasks are followed, which is the limit", f.Record.ID, maxFollowed)
		return
	}
	j.tasks[f.Record.Run] = true
	j.live++
	j.group.Go(func() {
		defer func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.live--
			console.WakeUp(j.ended)
		}()
		j.copy(ctx, f)
	})
}

// copy prints the output of one task, and how it ended.
func (j *joined) copy(ctx context.Context, f console.Found) {
	j.widen(f.Record)
	w := &taskLines{j: j, r: f.Record}
	p := printer{w: w}
	req := control.OutputRequest{Ref: string(f.Record.ID), Tail: j.many.tail, Max: logPiece}
	var err error
	for losses := 0; ; losses++ {
		err = j.a.copyOutput(ctx, f, &req, &p, j.many.follow)
		if !j.many.follow || !f.Live() || !console.HostGone(err) || losses == console.HostLosses {
			break
		}
		if f, err = j.a.Resolve(ctx, req.Ref, true); err != nil {
			break
		}
	}
	w.flush()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		j.a.Note("%v", err)
		return
	}
	if now, err := j.a.Resolve(ctx, req.Ref, true); err == nil && now.Record.Status.Terminal() {
		text := string(now.Record.Status)
		if code := console.Exit(now.Record); code != "-" {
			text += ", exit " + code
		}
		if why := now.Record.Why(); why != "" {
			text += ", " + excerpt.Line(why, console.MostReason)
		}
		text = strings.Join(append([]string{text}, now.Record.Notes...), "; ")
		j.write(now.Record, " * ", []byte(text))
	}
}

// shortName is how a task is called before its lines.
func shortName(r task.Record) string {
	if r.Name == "" {
		return console.Cell(string(r.ID), prefixChars)
	}
	return console.Cell(r.Name, prefixChars)
}

func (j *joined) widen(r task.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.width = max(j.width, console.TextWidth(shortName(r)))
}

// write prints one line of a task.
func (j *joined) write(r task.Record, mark string, line []byte) {
	name := shortName(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return
	}
	var b bytes.Buffer
	prefix := name + strings.Repeat(" ", max(0, j.width-console.TextWidth(name))) + mark
	if j.colour {
		prefix = "\x1b[" + colourOf(string(r.ID)) + "m" + prefix + "\x1b[0m"
	}
	b.WriteString(prefix)
	if j.plain {
		b.WriteString(excerpt.Plain(string(line)))
	} else {
		b.Write(line)
	}
	b.WriteByte('\n')
	if _, j.err = j.a.Stdout.Write(b.Bytes()); j.err != nil {
		j.stop(j.err)
	}
}

// colourOf is a colour that a task keeps in every terminal.
func colourOf(id string) string {
	colours := []string{"36", "33", "32", "35", "34", "96", "93", "92", "95", "94"}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id)) // it never fails
	return colours[int(sum.Sum32())%len(colours)]
}

// taskLines takes the output of a task apart into lines. Of a line without an end it keeps
// maxHeld bytes at most.
type taskLines struct {
	j    *joined
	r    task.Record
	held []byte
}

var _ io.Writer = (*taskLines)(nil)

func (w *taskLines) Write(data []byte) (int, error) {
	rest := data
	for {
		line, behind, ends := bytes.Cut(rest, []byte("\n"))
		w.held = append(w.held, line...)
		if !ends {
			break
		}
		w.flushLine()
		rest = behind
	}
	for len(w.held) > maxHeld {
		n := max(1, wholeRunes(w.held[:maxHeld]))
		w.j.write(w.r, " | ", w.held[:n])
		w.held = append(w.held[:0], w.held[n:]...)
	}
	return len(data), nil
}

func (w *taskLines) flushLine() {
	w.j.write(w.r, " | ", bytes.TrimSuffix(w.held, []byte("\r")))
	w.held = w.held[:0]
}

// flush prints the line that has no end.
func (w *taskLines) flush() {
	if len(w.held) > 0 {
		w.flushLine()
	}
}
