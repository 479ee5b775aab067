// Package gitrun calls git on repositories that an agent may have changed. Git runs
// programs that a repository's configuration names: every call turns them off, except
// filters, which cannot be turned off and which [Git.Harmless] finds. A call is bounded
// in time and output, and no process of it is left when it returns.
//
// It does not know the purpose of a repository.
package gitrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Bounds of one call of git.
const (
	gitTime   = 10 * time.Minute // a checkout of a large repository takes its time
	gitOutput = 64 << 20
	gitErrors = 8 << 10
)

// errFlood ends a git that prints more than is read.
var errFlood = errors.New("it printed more than 64 MiB")

// Git is where a call works: an administrative folder and a work tree, both named
// outright, so that a .git file which an agent may have written is not followed.
type Git struct {
	Dir   string   // of a discovery: only where it starts
	Admin string   // GIT_DIR; empty: discovered from Dir
	Tree  string   // GIT_WORK_TREE
	Index string   // GIT_INDEX_FILE; empty: the index of Admin
	Held  *os.File // lock that a git which outlives this process keeps; nil: none

	// Vars are set for git in addition, and win over ours. They come from the caller,
	// never from a client or a repository.
	Vars []string
}

// Error is a call of git that failed.
type Error struct {
	Command string // such as worktree add
	Code    int
	Text    string // one line of its output
	All     string // its output, at most 8 KiB
}

func (e *Error) Error() string { return fmt.Sprintf("git %s: %s", e.Command, e.Text) }

// Exited reports whether git ended with a code: by 1 many of its commands say no.
func Exited(err error, code int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// settings are set for every call: they win over all files.
func settings() []string {
	return []string{"core.hooksPath=/dev/null", "core.fsmonitor=false", "diff.external=", "gpg.program=/bin/false",
		"core.pager=cat", "core.editor=:", "gc.auto=0", "maintenance.auto=false", "submodule.recurse=false",
		"diff.ignoreSubmodules=dirty", "status.submoduleSummary=false", "core.safecrlf=false", "core.quotePath=false",
		"advice.detachedHead=false", "protocol.allow=never", "core.untrackedCache=keep"}
}

// Environ returns env without the variables that would take git from the folder that
// it is called in to another repository. It does not change env.
func Environ(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(
			[]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE",
				"GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"},
			name,
		)
	})
}

// env returns the environment of git: ours without variables that point git elsewhere.
// The user's own configuration stays.
func (g Git) env() []string {
	kept := []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES"}
	env := slices.DeleteFunc(Environ(os.Environ()), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.HasPrefix(name, "GIT_") && !slices.Contains(kept, name) || name == "LC_ALL" || name == "LANGUAGE"
	})
	const who, mail = "Drover", "drover@localhost"
	env = append(env, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=none",
		"GIT_NO_LAZY_FETCH=1", "GIT_PAGER=cat", "GIT_EDITOR=:", "GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE=/dev/null",
		"GIT_AUTHOR_NAME="+who, "GIT_AUTHOR_EMAIL="+mail, "GIT_COMMITTER_NAME="+who, "GIT_COMMITTER_EMAIL="+mail)
	if g.Admin != "" {
		env = append(env, "GIT_DIR="+g.Admin, "GIT_WORK_TREE="+g.Tree)
	}
	if g.Index != "" {
		env = append(env, "GIT_INDEX_FILE="+g.Index)
	}
	for _, kv := range g.Vars {
		name, _, _ := strings.Cut(kv, "=")
		env = slices.DeleteFunc(env, func(had string) bool { return strings.HasPrefix(had, name+"=") })
	}
	return append(env, g.Vars...)
}

// Run calls git and returns its output. It ends git, with all processes of git,
// when ctx or the time of a call ends.
func (g Git) Run(ctx context.Context, args ...string) ([]byte, error) { return g.run(ctx, nil, args) }

// Feed is Run for a call that reads its stdin, and of which the output does not matter.
func (g Git) Feed(ctx context.Context, stdin io.Reader, args ...string) error {
	_, err := g.run(ctx, stdin, args)
	return err
}

// Stream is Run for a call with an output of any size, which goes to out as it comes.
// The first error of out ends git and is returned. stdin may be nil.
func (g Git) Stream(ctx context.Context, stdin io.Reader, out io.Writer, args ...string) error {
	return g.do(ctx, stdin, args, func(end context.CancelCauseFunc) io.Writer { return &sink{out: out, end: end} })
}

func (g Git) run(ctx context.Context, stdin io.Reader, args []string) ([]byte, error) {
	out := &stream{limit: gitOutput}
	err := g.do(ctx, stdin, args, func(end context.CancelCauseFunc) io.Writer {
		out.full = func() { end(errFlood) }
		return out
	})
	if err != nil {
		return nil, err
	}
	return out.kept.Bytes(), nil
}

// do calls git. Its output goes to the writer that open returns, which may end git.
func (g Git) do(
	ctx context.Context, stdin io.Reader, args []string, open func(context.CancelCauseFunc) io.Writer,
) error {
	name := args[0]
	if name == "worktree" {
		name += " " + args[1]
	}
	ctx, done := context.WithTimeoutCause(ctx, gitTime, fmt.Errorf("it took longer than %s", gitTime))
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("git %s: %w", name, err)
	}
	full := []string{"git"}
	for _, s := range settings() {
		full = append(full, "-c", s)
	}
	out := open(cancel)
	errs := &stream{limit: gitErrors, full: func() {}}
	exit, err := g.call(ctx, append(full, args...), stdin, out, errs)
	if s, ok := out.(*sink); ok && s.err != nil {
		err = s.err // git may have ended before it could be
	}
	if err == nil && exit.Code == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("git %s: %w", name, err)
	}
	return &Error{Command: name, Code: exit.Code, Text: said(errs.kept.String(), exit), All: errs.kept.String()}
}

// said returns the most useful line of git's errors.
func said(text string, exit process.Exit) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := lines[len(lines)-1]
	for _, l := range lines {
		if rest, ok := strings.CutPrefix(l, "fatal: "); ok {
			line = rest
			break
		}
	}
	if line = excerpt.Line(line, 300); line != "" {
		return line
	}
	if exit.Signal != 0 {
		return "ended by " + exit.Signal.String()
	}
	return fmt.Sprintf("exit code %d", exit.Code)
}

// call starts git in a process group of its own and waits until no process of the group is left.
func (g Git) call(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (process.Exit, error) {
	c := process.Command{Args: args, Dir: g.place(), Env: g.env(), Session: true}
	if g.Held != nil {
		c.Extra = []*os.File{g.Held}
	}
	group, p, err := process.StartPiped(c)
	if err != nil {
		return process.Exit{}, err
	}
	defer group.Close()
	defer p.Close()
	var flows sync.WaitGroup // one per stream; waited for before call returns
	flows.Go(func() {
		if in != nil {
			_, _ = io.Copy(p.In, in) // a git that reads no further says why
		}
		_ = p.In.Close()
	})
	flows.Go(func() { _, _ = io.Copy(out, p.Out) })
	flows.Go(func() { _, _ = io.Copy(errs, p.Err) })
	exit, err := group.Wait(ctx)
	if err != nil || group.Reap() {
		group.End(context.Background(), process.Ending{})
		group.Reap()
	}
	p.Expire(lastBytes) // it does not wait for processes that left the group and still have the pipes
	flows.Wait()
	return exit, err
}

// lastBytes bounds the time to read git's output after its end.
const lastBytes = 5 * time.Second

func (g Git) place() string {
	if g.Admin != "" {
		return g.Tree
	}
	return g.Dir
}

// Text returns the answer of a call that prints one value. The value may have line
// ends in it, as paths have.
func (g Git) Text(ctx context.Context, args ...string) (string, error) {
	out, err := g.Run(ctx, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// Fields returns the entries of a call that ends each of them with a NUL.
func (g Git) Fields(ctx context.Context, args ...string) ([]string, error) {
	out, err := g.Run(ctx, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// Commit returns the commit that a name means; empty: none.
func (g Git) Commit(ctx context.Context, name string) (string, error) {
	oid, err := g.Text(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if Exited(err, 1) {
		return "", nil
	}
	return oid, err
}

// Ancestor reports whether a commit is in the history of another.
func (g Git) Ancestor(ctx context.Context, older, newer string) (bool, error) {
	_, err := g.Run(ctx, "merge-base", "--is-ancestor", older, newer)
	if Exited(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// Harmless refuses a repository whose own configuration names a program that
// cannot be turned off.
func (g Git) Harmless(ctx context.Context) error {
	list, err := g.Fields(ctx, "config", "--list", "--show-scope", "--includes", "-z")
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(list); i += 2 {
		key, _, _ := strings.Cut(list[i+1], "\n")
		if scope := list[i]; (scope == "local" || scope == "worktree") && runs(key) {
			return fmt.Errorf(
				"the repository's configuration sets %s, a program that git would run (move the setting to ~/.gitconfig if you trust it)",
				excerpt.Line(key, 100),
			)
		}
	}
	return nil
}

// runs reports settings that name a program and have a name of their own in the
// middle, so that no setting of ours can turn them all off.
func runs(key string) bool {
	section, rest, _ := strings.Cut(strings.ToLower(key), ".")
	last := rest[strings.LastIndexByte(rest, '.')+1:]
	return section == "filter" && slices.Contains([]string{"clean", "smudge", "process"}, last) ||
		section == "hook" && last == "command"
}

// stream keeps the output that fits, and reports once that some did not.
type stream struct {
	kept  bytes.Buffer
	limit int
	full  func()
}

func (s *stream) Write(p []byte) (int, error) {
	n := len(p)
	if room := s.limit - s.kept.Len(); n > room {
		s.full()
		p = p[:room]
	}
	_, _ = s.kept.Write(p)
	return n, nil
}

// sink passes output on up to the first error, and discards the rest.
type sink struct {
	out io.Writer
	end context.CancelCauseFunc
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err == nil {
		if _, s.err = s.out.Write(p); s.err != nil {
			s.end(s.err)
		}
	}
	return len(p), nil
}
