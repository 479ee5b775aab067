// Package schedule starts tasks of a project at certain times.
//
// A [Clock] owns the schedules of the project and their file. It belongs to the background session
// of the project, so that only one process has it open. A schedule starts at most one task for
// each of its times: the file says so before the task is started. A time that the host has missed
// is made up for once if it is not too long ago, and a time at which the last task still runs is
// skipped. Both are recorded with the schedule.
//
// The package knows neither commands nor agents; it starts ordinary tasks.
package schedule

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const (
	usualLate = time.Hour   // by which a run may be late
	longest   = time.Minute // between two looks at the clock: a machine may have slept
	version   = 1           // of the file
)

// Config configures a clock. All fields are required.
type Config struct {
	Read   func() ([]byte, error)  // the file; an error that wraps [fs.ErrNotExist]: none
	Write  func(data []byte) error // replaces the file; empty data removes it
	Start  func(context.Context, control.StartRequest) (task.Record, error)
	Live   func(task.ID) bool // whether a task has not ended
	Report func(text string)  // messages for the user
}

// Clock has the schedules of a project. Its methods may be called by several goroutines.
type Clock struct {
	cfg Config

	turn    sync.Mutex // held while a schedule is changed or its task is started; guards the next two
	all     []control.Schedule
	changed chan struct{} // closed and replaced when the schedules have changed

	mu      sync.Mutex // not held during a start, so that the end of a host waits for none
	active  int        // schedules that are not paused
	retired bool       // no schedule is accepted any more
}

// file is the stored form.
type file struct {
	Version   int                `json:"v"`
	Schedules []control.Schedule `json:"schedules"`
}

// Open reads the schedules.
func Open(cfg Config) (*Clock, error) {
	c := &Clock{cfg: cfg, changed: make(chan struct{})}
	data, err := cfg.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	var f file
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Version != version {
		err = fmt.Errorf("version %d is not known", f.Version)
	}
	if err != nil {
		return c, fmt.Errorf("read schedules: %w", err)
	}
	c.all = f.Schedules
	c.count()
	return c, nil
}

// Retire accepts no schedule from now on, if all are paused and ready reports that
// the host ends; it reports whether it does. A host with other schedules stays.
func (c *Clock) Retire(ready func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = c.retired || c.active == 0 && ready()
	return c.retired
}

// count counts the schedules that are not paused; it reports whether the host stays for them. The
// caller holds turn.
func (c *Clock) count() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return false
	}
	c.active = 0
	for _, s := range c.all {
		if !s.Paused {
			c.active++
		}
	}
	return true
}

// Run starts tasks at their times until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.turn.Lock()
		changed := c.changed
		wait, any := c.due(ctx, time.Now().Round(0))
		c.turn.Unlock()
		var at <-chan time.Time // without schedules there is nothing to look for
		if any {
			timer.Reset(wait)
			at = timer.C
		}
		select {
		case <-at:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// due starts the schedules that are due, and returns the time to the next, if a schedule is at work. The
// caller holds turn.
func (c *Clock) due(ctx context.Context, now time.Time) (wait time.Duration, any bool) {
	wait = longest
	for i := range c.all {
		s := &c.all[i]
		if s.Paused {
			continue
		}
		if !s.Next.After(now) {
			c.fire(ctx, s, now)
		}
		wait, any = min(wait, s.Next.Sub(now)), true
	}
	return max(0, wait), any
}

// fire starts the task of a schedule whose time has come. The caller holds turn.
func (c *Clock) fire(ctx context.Context, s *control.Schedule, now time.Time) {
	t, err := parse(s.Cron, s.Zone)
	if err != nil { // the machine has lost its time zones
		c.skip(s, s.Next, err.Error())
		s.Next = now.Add(time.Hour)
		_ = c.store() // the user reads of it
		return
	}
	due := s.Next
	late := cmp.Or(s.Late, usualLate)
	if now.Sub(due) > late {
		last := t.after(now.Add(-late))
		if last.After(now) {
			c.skip(s, due, fmt.Sprintf("no host ran then, and the run would be more than %s late", late))
		}
		due = last
	}
	s.Next = t.after(now)
	if due.After(now) {
		_ = c.store() // the user reads of it
		return
	}
	if s.LastTask != "" && c.cfg.Live(s.LastTask) {
		c.skip(s, due, fmt.Sprintf("task %s of its last run still runs", s.LastTask))
		_ = c.store() // the user reads of it
		return
	}
	_, _ = c.start(ctx, s, now) // the user reads of it
}

// start starts the task of a schedule. The caller holds turn.
func (c *Clock) start(ctx context.Context, s *control.Schedule, now time.Time) (task.Record, error) {
	at := now.UTC()
	s.LastTime, s.LastTask = &at, ""
	s.Runs++
	if err := c.store(); err != nil { // it would be started again by the next host
		c.skip(s, at, err.Error())
		return task.Record{}, err
	}
	rec, err := c.cfg.Start(ctx, request(*s))
	if err != nil {
		c.skip(s, at, err.Error())
	}
	s.LastTask = rec.ID
	return rec, errors.Join(err, c.store())
}

// request starts the task of a schedule.
func request(s control.Schedule) control.StartRequest {
	return control.StartRequest{Name: s.Name, Shell: s.Shell, Agent: s.Agent, Cwd: s.Cwd, Timeout: s.Timeout,
		Schedule: s.ID}
}

// skip notes that a schedule did not start its task. The caller holds turn.
func (c *Clock) skip(s *control.Schedule, due time.Time, why string) {
	s.Skipped++
	s.LastSkip = &control.Skip{Time: due.UTC(), Why: why}
	at := due.Local().Format("2006-01-02 15:04")
	c.cfg.Report(fmt.Sprintf("schedule %s did not start its task of %s: %s", label(*s), at, why))
}

// store writes the file. The caller holds turn.
func (c *Clock) store() error {
	var data []byte
	if len(c.all) > 0 {
		var err error
		if data, err = json.MarshalIndent(file{version, c.all}, "", "  "); err != nil {
			return fmt.Errorf("store schedules: %w", err)
		}
	}
	if err := c.cfg.Write(data); err != nil {
		c.cfg.Report(err.Error())
		return fmt.Errorf("store schedules: %w", err)
	}
	return nil
}

// Do lists the schedules, and changes them as a request says.
func (c *Clock) Do(ctx context.Context, req control.ScheduleRequest) (out control.Schedules, err error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	switch {
	case req.Add != nil:
		out.Changed, err = c.add(*req.Add)
	case req.Remove != "":
		out.Changed, err = c.remove(req.Remove)
	case req.Pause != "":
		out.Changed, err = c.pause(req.Pause, true)
	case req.Resume != "":
		out.Changed, err = c.pause(req.Resume, false)
	case req.Run != "":
		out.Changed, out.Task, err = c.runNow(ctx, req.Run)
	}
	if err != nil {
		return control.Schedules{}, err
	}
	if req != (control.ScheduleRequest{}) {
		close(c.changed)
		c.changed = make(chan struct{})
	}
	out.Schedules = append([]control.Schedule{}, c.all...)
	return out, nil
}

func (c *Clock) add(s control.Schedule) (*control.Schedule, error) {
	invalid := func(format string, args ...any) error {
		return control.Refuse(control.Invalid, "add schedule: "+fmt.Sprintf(format, args...), "")
	}
	t, err := parse(s.Cron, s.Zone)
	switch {
	case err != nil:
		return nil, invalid("%v", err)
	case (s.Shell == nil) == (s.Agent == nil):
		return nil, invalid("it starts either a command or an agent")
	case s.Shell != nil && len(s.Shell.Args) == 0 && s.Shell.Line == "",
		s.Agent != nil && strings.TrimSpace(s.Agent.Prompt) == "":
		return nil, invalid("there is nothing to start (give a command behind --, or --prompt)")
	case !filepath.IsAbs(s.Cwd):
		return nil, invalid("the folder %q is not absolute", s.Cwd)
	case s.Late < 0:
		return nil, invalid("--late is negative")
	case request(s).Check() != nil:
		return nil, invalid("%v", request(s).Check())
	case len(c.all) >= control.MaxSchedules:
		return nil, control.Refuse(control.Unavailable, fmt.Sprintf("add schedule: the project has %d already", len(c.all)),
			"remove one with `drover schedule rm`")
	case s.Name != "" && slices.ContainsFunc(c.all, func(o control.Schedule) bool { return o.Name == s.Name }):
		return nil, control.Refuse(control.Conflict, fmt.Sprintf("add schedule: there is a schedule %q", s.Name),
			"give another name, or remove that one")
	}
	now := time.Now().Round(0)
	added := control.Schedule{ID: "sch_" + strings.ToLower(rand.Text()[:8]), Name: s.Name, Cron: s.Cron, Zone: s.Zone,
		Late: s.Late, Cwd: s.Cwd, Timeout: s.Timeout, Shell: s.Shell, Agent: s.Agent, Created: now.UTC(), Next: t.after(now)}
	return &added, c.replace(append(slices.Clone(c.all), added))
}

// replace stores other schedules, and has them from then on. The caller holds turn.
func (c *Clock) replace(all []control.Schedule) error {
	before := c.all
	c.all = all
	if !c.count() {
		c.all = before
		return control.Refuse(control.Unavailable, "change schedules: the host is ending", "try again")
	}
	if err := c.store(); err != nil {
		c.all = before
		c.count()
		return err
	}
	return nil
}

// pause pauses a schedule or resumes it. Times that pass while it is paused are not made up for.
func (c *Clock) pause(ref string, paused bool) (*control.Schedule, error) {
	i, err := c.find(ref)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(c.all)
	s := &all[i]
	if s.Paused && !paused {
		t, err := parse(s.Cron, s.Zone)
		if err != nil {
			return nil, control.Refuse(control.Invalid, fmt.Sprintf("resume schedule %s: %v", label(*s), err), "")
		}
		s.Next = t.after(time.Now().Round(0))
	}
	s.Paused = paused
	now := *s
	return &now, c.replace(all)
}

// find returns the place of the schedule that an ID, its beginning or a name means.
func (c *Clock) find(ref string) (int, error) {
	// A whole ID or name is meant although the IDs of others begin so.
	found := slices.IndexFunc(c.all, func(s control.Schedule) bool { return s.ID == ref || s.Name == ref })
	if found >= 0 {
		return found, nil
	}
	for i, s := range c.all {
		if !strings.HasPrefix(s.ID, ref) && !strings.HasPrefix(s.ID, "sch_"+ref) {
			continue
		}
		if found >= 0 {
			return 0, control.Refuse(control.Ambiguous, fmt.Sprintf("schedule %q: several begin so", ref),
				"see `drover schedule list`")
		}
		found = i
	}
	if found < 0 {
		return 0, control.Refuse(control.NotFound, fmt.Sprintf("there is no schedule %q", ref), "see `drover schedule list`")
	}
	return found, nil
}

func (c *Clock) remove(ref string) (*control.Schedule, error) {
	i, err := c.find(ref)
	if err != nil {
		return nil, err
	}
	s := c.all[i]
	return &s, c.replace(slices.Delete(slices.Clone(c.all), i, i+1))
}

// runNow starts the task of a schedule outside of its times.
func (c *Clock) runNow(ctx context.Context, ref string) (*control.Schedule, *task.Record, error) {
	i, err := c.find(ref)
	if err != nil {
		return nil, nil, err
	}
	s := &c.all[i]
	if s.LastTask != "" && c.cfg.Live(s.LastTask) {
		return nil, nil, control.Refuse(control.Conflict,
			fmt.Sprintf("run schedule %s: task %s of its last run still runs", label(*s), s.LastTask),
			fmt.Sprintf("wait for it, or stop it with `drover stop %s`", s.LastTask))
	}
	rec, err := c.start(ctx, s, time.Now())
	if err != nil {
		return nil, nil, err
	}
	now := *s
	return &now, &rec, nil
}

func label(s control.Schedule) string { return cmp.Or(s.Name, s.ID) }
