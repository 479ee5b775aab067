package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/socket"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// PromptVariable names a file with the prompt that a host is to answer in a session of its own.
const PromptVariable = "DROVER_HOST_PROMPT"

// ProjectVariable is the project of a host. It is not an argument, so that a task that kills
// processes by words of their command lines does not match its own host.
const ProjectVariable = "DROVER_HOST_PROJECT"

// maxInfo limits the small files of a session.
const maxInfo = 4 << 20

// startWait limits the start of a detached host.
const startWait = 20 * time.Second

// Directory finds the sessions of a state folder.
type Directory struct {
	Root    home.Root
	Folder  string   // of the current project
	Env     []string // for a host that is started
	Program []string // starts the keeper of a detached host, such as /usr/bin/drover keeper

	// EndLost ends the processes that dead hosts have left. It is called with the sessions that
	// are found unclosed. nil: not called.
	EndLost func(ctx context.Context, died []task.ID)
}

// Entry is one session.
type Entry struct {
	Place home.Session
	Info  control.Info
}

// Project returns the current project.
func (d *Directory) Project() home.Project { return d.Root.Project(d.Folder) }

// Sessions returns the sessions of the project, or of all projects, newest first; with live
// only the live ones.
func (d *Directory) Sessions(ctx context.Context, live, all bool) (out []Entry, err error) {
	defer annotate.Error(&err, "list sessions")
	projects := []home.Project{d.Project()}
	if all {
		if projects, err = d.Root.Projects(); err != nil {
			return nil, err
		}
	}
	var died []task.ID
	for _, p := range projects {
		d.at(p).revive(ctx)
		places, err := p.Sessions()
		if err != nil {
			return nil, err
		}
		for _, place := range places {
			info, err := readInfo(place)
			if err != nil {
				info, err = undescribed(place)
			}
			if err != nil {
				continue // it is being created, or was never completed
			}
			info = alive(info)
			if info.EndTime == nil && !info.Live {
				died = append(died, info.Session)
			}
			if info.Live || !live {
				out = append(out, Entry{Place: place, Info: info})
			}
		}
	}
	if len(died) > 0 && d.EndLost != nil { // before its records are read
		d.EndLost(ctx, died)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return b.Info.StartTime.Compare(a.Info.StartTime) })
	return out, nil
}

// Revive starts the background host of each project that has schedules, parked agents or kept
// commands, and no host.
func (d *Directory) Revive(ctx context.Context) error {
	projects, err := d.Root.Projects()
	for _, p := range projects {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d.at(p).revive(ctx)
	}
	return err
}

// at returns the directory as used from the folder of a project.
func (d *Directory) at(p home.Project) *Directory {
	there := *d
	if there.Folder = p.Folder(); d.Project().Dir() != p.Dir() {
		there.Env = EnvAt(d.Env, p.Folder())
	}
	return &there
}

// revive starts a host for the background session again if its host died and kept commands
// still run, since they are live and must be listed as such, or if the project has schedules that
// are not paused.
func (d *Directory) revive(ctx context.Context) {
	if d.scheduled() {
		if _, live := d.lives(Entry{}); !live {
			d.startFor(ctx)
		}
		return
	}
	id := d.background()
	if id == "" {
		return
	}
	if _, err := os.Stat(d.Folder); errors.Is(err, fs.ErrNotExist) {
		return // nothing can be running there, and each listing would start a host
	}
	place := d.Project().Session(id)
	info, err := readInfo(place)
	if err != nil || info.EndTime != nil && info.Tasks.Live == 0 || socket.Answers(info.Socket) {
		return
	}
	a, err := archive.Open(ctx, place, info)
	if err != nil {
		return // opening the session reports the reason
	}
	kept := a.Kept()
	_ = a.Close() // it was opened for reading only
	if kept {
		d.startFor(ctx)
	}
}

// scheduled reports whether the project has schedules that are not paused.
func (d *Directory) scheduled() bool {
	data, err := d.Root.ReadFile(d.Project().SchedulesFile(), maxInfo)
	if err != nil {
		return false
	}
	var file struct {
		Schedules []control.Schedule `json:"schedules"`
	}
	return json.Unmarshal(data, &file) == nil &&
		slices.ContainsFunc(file.Schedules, func(s control.Schedule) bool { return !s.Paused })
}

// startFor starts the background host, if the folder of the project is there.
func (d *Directory) startFor(ctx context.Context) {
	if _, err := os.Stat(d.Folder); err != nil {
		return
	}
	if _, release, err := d.Background(ctx); err == nil {
		release()
	}
}

func readInfo(place home.Session) (control.Info, error) {
	var info control.Info
	data, err := place.ReadInfo()
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("read %s: %w", place.InfoFile(), err)
	}
	info.Dir = place.Dir()
	return info, nil
}

// Open connects to a live session, or reads the log of a dead one, or of one whose host is
// suspended.
func (e Entry) Open(ctx context.Context) (control.API, func(), error) {
	if e.Info.Live && !e.Info.Stopped {
		return e.Reach(ctx)
	}
	return e.read(ctx)
}

// Reach is Open for a caller that waits for a suspended host.
func (e Entry) Reach(ctx context.Context) (control.API, func(), error) {
	if e.Info.Live {
		_ = failpoint.Hit("host/found")
		c := control.Dial(e.Info.Socket)
		return c, func() { _ = c.Close() }, nil // only idle connections are closed
	}
	return e.read(ctx)
}

func (e Entry) read(ctx context.Context) (control.API, func(), error) {
	a, err := archive.Open(ctx, e.Place, e.Info)
	if err != nil {
		return nil, nil, fmt.Errorf("open session %s: %w", e.Info.Session, err)
	}
	return a, func() { _ = a.Close() }, nil
}

// background returns the ID of the project's background session, or "".
func (d *Directory) background() task.ID {
	data, err := d.Root.ReadFile(d.Project().BackgroundFile(), maxInfo)
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(data))
	if !home.SessionID(id) {
		return ""
	}
	return task.ID(id)
}

// BackgroundSession returns the project's background session, which is created at its first
// use. The caller holds the project's lock or is the only caller.
func (d *Directory) BackgroundSession() (home.Session, error) {
	p := d.Project()
	if err := p.Ensure(); err != nil {
		return home.Session{}, err
	}
	if id := d.background(); id != "" {
		return p.Session(id), nil
	}
	return d.NewBackgroundSession()
}

// NewBackgroundSession creates another session, in place of a session that can no longer be opened.
// The caller is as for [Directory.BackgroundSession].
func (d *Directory) NewBackgroundSession() (home.Session, error) {
	id := task.NewSessionID()
	if err := d.Root.WriteAtomic(d.Project().BackgroundFile(), []byte(id+"\n")); err != nil {
		return home.Session{}, fmt.Errorf("name the background session: %w", err)
	}
	return d.Project().Session(id), nil
}

// Background connects to the project's detached host and starts it if necessary. If that host
// is ending at a request, the next one is used.
func (d *Directory) Background(ctx context.Context) (control.API, func(), error) {
	at, err := d.detached(ctx, Entry{})
	if err != nil {
		return nil, nil, err
	}
	c := control.Follow(at.Info.Socket, func(ctx context.Context) (string, error) {
		next, err := d.detached(ctx, at)
		if err != nil {
			return "", err
		}
		at = next
		return at.Info.Socket, nil
	})
	return c, func() { _ = c.Close() }, nil
}

// detached finds the project's detached host, or starts it. It differs from the one that
// refused a request, if there was one.
func (d *Directory) detached(ctx context.Context, was Entry) (Entry, error) {
	if now, live := d.lives(was); live {
		return now, nil
	}
	if err := d.Project().Ensure(); err != nil {
		return Entry{}, err
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	if was.Info.PID != 0 && !was.Gone(ctx) {
		return Entry{}, control.Refuse(control.Unavailable,
			fmt.Sprintf("the detached host has been ending for %s", goneWait), "see "+d.logFile())
	}
	if now, live := d.lives(was); live { // another process has started it meanwhile
		return now, nil
	}
	_ = failpoint.Hit("host/wanted")
	failed := d.Start(ctx)
	_ = failpoint.Hit("host/said")
	now, live := d.lives(was)
	switch {
	case live: // also a host whose starter no longer waited
		return now, nil
	case failed != nil:
		return Entry{}, failed
	}
	return Entry{}, control.Refuse(control.Unavailable, "the detached host started and went away again",
		"see "+d.logFile())
}

// lives returns the project's detached host, if one answers that differs from was.
func (d *Directory) lives(was Entry) (Entry, bool) {
	id := d.background()
	if id == "" {
		return Entry{}, false
	}
	place := d.Project().Session(id)
	info, live := look(place)
	return Entry{Place: place, Info: info}, live && info.PID != was.Info.PID
}

// lock waits for the lock under which hosts are started.
func (d *Directory) lock(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait,
		fmt.Errorf("another process has been starting one for %s", startWait))
	defer cancel()
	unlock, err := home.Await(ctx, d.Project().Lock)
	if err != nil {
		return nil, fmt.Errorf("start the detached host: %w", err)
	}
	return unlock, nil
}

func (d *Directory) logFile() string { return filepath.Join(d.Project().Dir(), "host.log") }

// Start starts a keeper, which starts a host, and waits until the host reports that it listens.
// The additional environment selects the session; the default is the background session.
func (d *Directory) Start(ctx context.Context, env ...string) error {
	log, before, err := d.openLog()
	if err != nil {
		return fmt.Errorf("start the detached host: %w", err)
	}
	defer log.Close()
	said, says, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the detached host: %w", err)
	}
	defer said.Close()
	cmd := exec.Command(d.Program[0], d.Program[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(append(HostEnv(d.Env), keeperMark, ProjectVariable+"="+d.Folder), env...)
	cmd.Stdout, cmd.Stderr = says, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = says.Close()
	if err != nil {
		return fmt.Errorf("start the detached host: %w", err)
	}
	_ = cmd.Process.Release() // it outlives this process, and init reaps it
	if err := said.SetReadDeadline(time.Now().Add(startWait)); err != nil {
		return fmt.Errorf("start the detached host: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = said.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err == nil && line == Ready {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	why, _ := d.Root.ReadFile(d.logFile(), maxInfo)
	why = why[min(int(before), len(why)):]
	return control.Refuse(control.Unavailable, "the detached host did not start: "+lastLine(string(why)),
		"see "+d.logFile())
}

// maxLog is the size at which the log of hosts is truncated.
const maxLog = 1 << 20

// openLog opens the log of the project's hosts, to which live ones may be writing, and returns
// its size.
func (d *Directory) openLog() (log *os.File, size int64, err error) {
	log, err = d.Root.Below().Open(
		d.logFile(),
		os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NONBLOCK,
		0o600,
	) // opening a pipe for writing only would fail
	if err != nil {
		return nil, 0, err
	}
	info, err := log.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file (move it away)", d.logFile())
	case info.Size() > maxLog:
		err = log.Truncate(0)
	default:
		size = info.Size()
	}
	if err != nil {
		_ = log.Close()
		return nil, 0, err
	}
	return log, size, nil
}

// keeperMark marks the keeper of a detached host, so that ending a task never ends it. The
// keeper does not pass it on.
const keeperMark = "DROVER_KEEPER=detached"

// Ready is the line that a host prints when it listens.
const Ready = "ready\n"

// HostEnv returns the environment of a host that a client starts, without the marks of a task
// in which the client may run: the host does not belong to it.
func HostEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		switch key {
		case "DROVER_TASK_ID",
			"DROVER_SESSION",
			"DROVER_HOST",
			"DROVER_KEEPER",
			"DROVER_KEEPER_FD",
			ProjectVariable,
			PromptVariable:
			return true
		}
		return false
	})
}

// EnvAt returns an environment for a program that runs in another folder.
func EnvAt(env []string, folder string) []string {
	there := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "PWD=") || strings.HasPrefix(kv, "OLDPWD=")
	})
	return append(there, "PWD="+folder)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return strings.TrimPrefix(last, "drover: ")
	}
	return "it said nothing"
}
