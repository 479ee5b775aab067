package run

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// Foreground is a command that runs in this process.
type Foreground struct {
	Request        control.StartRequest
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

const (
	maxLine  = 1 << 20 // bytes of a line of a batch
	maxBatch = 1000    // tasks in one request
)

func (a *app) run() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run [-d] [--name N] [--timeout D] [--keep] [--tty] [--sandbox] [--on WORKER] [--batch FILE] [--json] -- CMD [ARG…]",
		Long: `Run a command as a task, in the foreground or, with -d, in the background.

A single argument that contains blanks is run by bash; otherwise the first
argument is the program. In the foreground the exit code is the command's own,
128+n for a signal, 124 for a timeout, 125 when Drover itself fails. Ctrl-C
sends SIGINT, then TERM and KILL if the command keeps running; a second Ctrl-C
sends KILL. With -d only the ID is printed.

With --tty the command gets its own terminal. In the foreground it receives your
keys, or stdin if that is not a terminal; in the background "drover send" types
into it.

With --sandbox the command writes only in this folder, in temporary folders and in
caches, reads everything but secrets, and has no network but that of the session's
sandbox; its record says which of these bounds hold on this machine.

With --retry N a command that fails, by its exit code or by a signal, is started again after
1 s, 2 s, 4 s and so on, at most 5 minutes, up to N times. It is one task: its owner is told
of the last end only, --timeout counts for all attempts, and its record lists the "attempts".

With --on a worker on another machine runs the command: the one of that name, one with that
label, or with "auto" any. It has the environment of the worker, and of yours only the
variables that --env names. A checkout of git travels with it: the commit, what is not
committed, and untracked files by --untracked. What the command changes comes back as the
commit refs/drover/tasks/ID, and not into your files. Of a folder in no checkout nothing travels,
or with --sync all its files; what the command changes then comes back into a folder of the
session, which is named at the end. See "drover hub".

--batch reads one task per line from a file, or from stdin with -: a line for bash, or a
JSON object {"name", "description", "command" | "args", "cwd", "timeout", "keep", "tty",
"sandbox", "retry", "on", "env_names", "untracked", "no_folder", "sync"}, which come before the flags.
The IDs are printed in order; with --json, one JSON object per line.`,
		Args:              console.Args(0, -1),
		ValidArgsFunction: console.CompleteFiles,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the command is the command's
	detach := f.BoolP("detach", "d", false, "run in the background and print the ID")
	name := f.String("name", "", "a name that can be used wherever an ID can")
	timeout := f.String("timeout", "", "stop the command after this time, such as 90s or 10m")
	keep := f.Bool("keep", false, "let the command outlive its host (implies -d)")
	terminal := f.Bool("tty", false, "give the command its own terminal; \"drover send\" types into it")
	bounded := f.Bool("sandbox", false, "bound what the command writes, reads and reaches")
	retries := f.Int("retry", 0, "start the command again up to `N` times when it fails, after 1 s, 2 s, 4 s, …")
	batch := f.String("batch", "", "read tasks from `FILE`, or - for stdin (implies -d)")
	on := f.String("on", "", "run the command on another machine: a worker, a label, or auto")
	env := f.StringSlice("env", nil, "with --on: name of a variable whose value travels there")
	bare := f.Bool("no-folder", false, "with --on: leave the folder here; the command starts in the folder of the worker")
	untracked := f.StringSlice("untracked", nil, "with --on: pattern of untracked files that travel with the folder")
	sync := f.Bool("sync", false,
		"with --on: send all files of this folder, which is in no checkout of git, and bring back what is changed")
	asJSON := f.Bool("json", false, "print the task as JSON")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		model := control.StartRequest{Name: *name, Keep: *keep, Env: a.Env, Cwd: a.Cwd,
			On: *on, EnvNames: *env, NoFolder: *bare, Untracked: *untracked, Sync: *sync}
		if f.Changed("timeout") {
			var err error
			if model.Timeout, err = console.Duration("--timeout", *timeout, 1e6); err != nil {
				return err
			}
		}
		ctx := cmd.Context()
		for flag, given := range map[string]bool{"name": *name != "", "tty": *terminal, "sandbox": *bounded,
			"retry": *retries != 0} {
			if given && f.Changed("batch") {
				return console.Usage("--"+flag+" and --batch are mutually exclusive",
					"set "+flag+" in the JSON objects of the batch")
			}
		}
		switch {
		case f.Changed("batch") && len(words) > 0:
			return console.Usage("--batch and a command are mutually exclusive", "give one of them")
		case (len(*env) > 0 || *bare || *sync || len(*untracked) > 0) && *on == "":
			return console.Usage("--env, --no-folder, --sync and --untracked need --on: a command here has your environment and folder", "leave them out")
		case *sync && (*bare || len(*untracked) > 0):
			return console.Usage("--sync and --no-folder or --untracked are mutually exclusive",
				"--sync sends all files of the folder")
		case *retries < 0 || *retries > task.MaxRetries:
			return console.Usage(fmt.Sprintf("--retry is %d", *retries),
				fmt.Sprintf("give a number from 0 to %d", task.MaxRetries))
		case *retries > 0 && (*keep || *terminal):
			return console.Usage("--retry and --keep or --tty are mutually exclusive", "leave one of them out")
		case f.Changed("batch"):
			return a.runBatch(ctx, *batch, model, *asJSON)
		case len(words) == 0 || words[0] == "":
			return console.Usage("CMD is required", "usage: drover run -- CMD")
		}
		model.Shell = shell(words)
		model.Shell.TTY, model.Shell.Sandbox = *terminal, *bounded
		model.Shell.Retries = *retries
		if *detach || *keep {
			return console.DroverFailed(ctx, a.runDetached(ctx, model, *asJSON))
		}
		return a.runForeground(ctx, model, *asJSON)
	}
	return cmd
}

func shell(words []string) *control.ShellRequest {
	if len(words) == 1 && strings.ContainsAny(words[0], " \t\n") {
		return &control.ShellRequest{Line: words[0]}
	}
	return &control.ShellRequest{Args: words}
}

func (a *app) runForeground(ctx context.Context, req control.StartRequest, asJSON bool) error {
	f := Foreground{Request: req, Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr}
	if asJSON {
		f.Stdout = a.Stderr // stdout carries the JSON only
	}
	r, err := a.RunForeground(ctx, f)
	if err != nil {
		return console.DroverFailed(ctx, fmt.Errorf("run command: %w", err))
	}
	if w := r.Worktree; w != nil && r.Worker != "" && !asJSON && (w.Rescue != "" || !w.Removed) {
		a.Note("%s", w.Text)
	}
	if !asJSON {
		a.NoteEnd(r)
	}
	if asJSON {
		if err := console.PrintJSON(a.Stdout, r); err != nil {
			return err
		}
	}
	return a.ended(r)
}

func (a *app) runDetached(ctx context.Context, req control.StartRequest, asJSON bool) error {
	rec, err := a.StartDetached(ctx, req)
	switch {
	case err != nil:
		return fmt.Errorf("start task: %w", err)
	case asJSON:
		return console.PrintJSON(a.Stdout, rec)
	}
	return a.Println(rec.ID)
}

// ended gives the end of a task as an exit code, and says on stderr what the
// code does not.
func (a *app) ended(r task.Record) error {
	code := console.CodeOf(r)
	if code == 0 {
		return nil
	}
	e := &console.ExitError{Code: code}
	if r.Cause != nil && (r.Cause.Actor != task.ByItself || r.Cause.Reason == task.ReasonStart || r.Cause.Detail != "") {
		e.Err = fmt.Errorf("task %s %s: %s", r.ID, r.Status, cmp.Or(r.Error, r.Why()))
	}
	return e
}

// batchLine is a task of a batch, in the words of the flags.
type batchLine struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Command     string   `json:"command"`
	Args        []string `json:"args"`
	Cwd         string   `json:"cwd"`
	Timeout     string   `json:"timeout"`
	Keep        bool     `json:"keep"`
	TTY         bool     `json:"tty"`
	Sandbox     bool     `json:"sandbox"`
	Retry       int      `json:"retry"`
	On          string   `json:"on"`
	EnvNames    []string `json:"env_names"`
	Untracked   []string `json:"untracked"`
	NoFolder    bool     `json:"no_folder"`
	Sync        bool     `json:"sync"`
}

// parseLine makes a request of a line. A line of bash may begin with a brace
// too: only what begins like a JSON object is taken for one.
func parseLine(line []byte, model control.StartRequest) (control.StartRequest, error) {
	req := model
	rest, brace := bytes.CutPrefix(line, []byte("{"))
	if rest = bytes.TrimSpace(rest); !brace || len(rest) == 0 || rest[0] != '"' && rest[0] != '}' {
		req.Shell = &control.ShellRequest{Line: string(line)}
		return req, nil
	}
	var in batchLine
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return req, console.Usage("not a task: "+err.Error(), "see `drover run --help`")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return req, console.Usage("something follows the JSON object", "one task a line")
	}
	switch {
	case (in.Command == "") == (len(in.Args) == 0):
		return req, console.Usage("not a task: neither or both of command and args", "give one of them")
	case in.Command != "":
		req.Shell = &control.ShellRequest{Line: in.Command}
	default:
		req.Shell = &control.ShellRequest{Args: in.Args}
	}
	req.Shell.TTY, req.Shell.Sandbox = in.TTY, in.Sandbox
	req.Shell.Retries = in.Retry
	req.Name, req.Description, req.Keep = in.Name, in.Description, req.Keep || in.Keep
	if in.On != "" {
		req.On = in.On
	}
	if len(in.EnvNames) > 0 {
		req.EnvNames = in.EnvNames
	}
	if len(in.Untracked) > 0 {
		req.Untracked = in.Untracked
	}
	req.NoFolder, req.Sync = req.NoFolder || in.NoFolder, req.Sync || in.Sync
	if in.Cwd != "" {
		if req.Cwd = in.Cwd; !filepath.IsAbs(in.Cwd) {
			req.Cwd = filepath.Join(model.Cwd, in.Cwd)
		}
	}
	if in.Timeout != "" {
		d, err := console.Duration("timeout", in.Timeout, 1e6)
		if err != nil {
			return req, err
		}
		req.Timeout = d
	}
	return req, nil
}

// runBatch starts tasks as their lines arrive. A bad line is noted and skipped.
func (a *app) runBatch(ctx context.Context, name string, model control.StartRequest, asJSON bool) error {
	in := a.Stdin
	if name != "-" {
		name = a.Path(name)
		file, err := os.Open(name)
		if err != nil {
			return console.Usage("open batch: "+err.Error(), "give a file, or - for stdin")
		}
		defer file.Close()
		in = file
	}
	api, done, err := a.Background(ctx)
	if err != nil {
		return console.DroverFailed(ctx, fmt.Errorf("open background session: %w", err))
	}
	defer done()

	b := batch{app: a, api: api, asJSON: asJSON}
	lines := bufio.NewReaderSize(in, maxLine)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			b.refuse(number, console.Usage(fmt.Sprintf("longer than %d bytes", maxLine), "put the command into a file"))
			line, err = nil, pass(lines)
		}
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' {
			req, bad := parseLine(text, model)
			b.add(number, req, bad)
		}
		// No further line has arrived: the tasks so far need not wait for one.
		if err != nil || lines.Buffered() == 0 || len(b.reqs) == maxBatch {
			if err := b.send(ctx); err != nil {
				return console.DroverFailed(ctx, err)
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return console.DroverFailed(ctx, fmt.Errorf("read batch: %w", err))
		}
		if err != nil {
			return b.outcome()
		}
	}
}

// pass leaves out the rest of a line.
func pass(lines *bufio.Reader) error {
	for {
		if _, err := lines.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// batch gathers tasks for one request.
type batch struct {
	*app
	api     control.API
	asJSON  bool
	reqs    []control.StartRequest
	numbers []int // of the lines
	code    int   // of the first refusal
	refused int
}

func (b *batch) add(number int, req control.StartRequest, bad error) {
	if bad != nil {
		b.refuse(number, bad)
		return
	}
	b.reqs, b.numbers = append(b.reqs, req), append(b.numbers, number)
}

func (b *batch) refuse(number int, err error) {
	if b.Note("batch line %d: %v", number, err); b.refused == 0 {
		b.code = console.CodeDrover
		if e, ok := errors.AsType[*control.Error](err); ok && e.Code == control.Invalid {
			b.code = console.CodeUsage
		}
	}
	b.refused++
}

func (b *batch) send(ctx context.Context) error {
	if len(b.reqs) == 0 {
		return nil
	}
	started, err := b.api.Start(ctx, b.reqs)
	if err != nil {
		return fmt.Errorf("start tasks from batch line %d on: %w", b.numbers[0], err)
	}
	var out bytes.Buffer
	for i, s := range started {
		if s.Task != nil && s.Task.Renamed() != "" {
			b.Hint(s.Task.Renamed())
		}
		switch {
		case s.Error != nil:
			b.refuse(b.numbers[i], s.Error)
			if b.asJSON {
				line, err := console.Marshal(s, "")
				if err != nil {
					return err
				}
				out.Write(line)
			}
		case b.asJSON:
			line, err := console.Marshal(s.Task, "")
			if err != nil {
				return err
			}
			out.Write(line)
		default:
			fmt.Fprintln(&out, s.Task.ID)
		}
	}
	b.reqs, b.numbers = b.reqs[:0], b.numbers[:0]
	_, err = b.Stdout.Write(out.Bytes())
	return err
}

func (b *batch) outcome() error {
	if b.refused == 0 {
		return nil
	}
	return &console.ExitError{Code: b.code, Err: fmt.Errorf("%d lines of the batch were refused", b.refused)}
}
