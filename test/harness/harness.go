// Package harness builds the program for tests, gives them a place to run it in, and
// finds what runs there.
//
// It promises that everything started in a place is found, whatever it became the child
// of, and that a place that has ended leaves no process. It judges nothing that the
// program prints, and only tests import it.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/waittest"
)

// Patience bounds every wait. On an idle machine none comes near it.
const Patience = 60 * time.Second

// Build builds the program into the file bin; flags are flags of go build. It runs in a folder two below the root of
// Drover's module, where the tests of the built program are; some of them are modules of their own.
func Build(bin string, flags ...string) error { return build(bin, "./cmd/drover", flags) }

// BuildHub builds the program of the hub into the folder of the program bin, from the same sources.
func BuildHub(bin string, flags ...string) error {
	return build(filepath.Join(filepath.Dir(bin), "drover-hub"), "./cmd/drover-hub", flags)
}

// Stamp is the flag with which programs of one build are built for tests; see buildinfo.ID.
func Stamp(build string) string {
	return "-ldflags=-s -w -X github.com/drover-dev/drover/internal/platform/buildinfo.stamp=" + build
}

// BuildKeeper builds the keeper into the folder of the program bin. That uses it if both have one [Stamp].
func BuildKeeper(bin string, flags ...string) error {
	return build(filepath.Join(filepath.Dir(bin), "drover-keeper"), "./cmd/drover-keeper", flags)
}

func build(bin, from string, flags []string) error {
	cmd := exec.Command("go", slices.Concat([]string{"build", "-C", "../..", "-trimpath"}, flags,
		[]string{"-o", bin, from})...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return nil
}

// Mark is in the environment of everything that is started in a place. Drover keeps
// variables of its own name from commands, so it must have another.
const Mark = "TEST_PLACE"

// Place is a folder with a state of its own, and everything that runs there.
type Place struct {
	testing.TB
	Bin     string // the program
	Work    string // holds all that follows
	Dir     string // the project
	Sockets string
	Env     []string // of all that is started here
}

// New makes a place for the program bin. [Place.End] must be called in the end.
func New(t testing.TB, bin string) *Place {
	t.Helper()
	p := &Place{TB: t, Bin: bin, Work: t.TempDir()}
	p.Dir = filepath.Join(p.Work, "project")
	sockets, err := os.MkdirTemp("/tmp", "dt") // the path of a socket must be short
	p.Must(err)
	p.Sockets = sockets
	for _, dir := range []string{p.Dir, filepath.Join(p.Work, "user"), filepath.Join(p.Work, "config", "drover")} {
		p.Must(os.MkdirAll(dir, 0o700))
	}
	p.Env = []string{
		"PATH=" + filepath.Dir(bin) + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + filepath.Join(p.Work, "user"),
		"DROVER_HOME=" + p.State(),
		"XDG_CONFIG_HOME=" + filepath.Join(
			p.Work,
			"config",
		),
		"XDG_RUNTIME_DIR=" + sockets,
		"TMPDIR=" + p.Work,
		"DROVER_SANDBOX_AUTO_ALLOW=false", // commands are bounded, and asked about all the same
		Mark + "=" + p.Work,
	}
	return p
}

// Must ends the test for an error.
func (p *Place) Must(err error) {
	if err != nil {
		p.Helper()
		p.Fatal(err)
	}
}

// State is the folder in which Drover keeps everything.
func (p *Place) State() string { return filepath.Join(p.Work, "state") }

// Settings writes those of the user.
func (p *Place) Settings(text string) {
	p.Helper()
	p.Must(os.WriteFile(filepath.Join(p.Work, "config", "drover", "settings.json"), []byte(text), 0o600))
}

// File writes a file of the project.
func (p *Place) File(name, text string, mode os.FileMode) string {
	p.Helper()
	path := filepath.Join(p.Dir, name)
	p.Must(os.MkdirAll(filepath.Dir(path), 0o700))
	p.Must(os.WriteFile(path, []byte(text), mode))
	return path
}

// Fifo makes a pipe on which commands wait.
func (p *Place) Fifo(name string) string {
	p.Helper()
	p.Must(syscall.Mkfifo(filepath.Join(p.Dir, name), 0o600))
	return name
}

// Free lets a command go on that reads from a pipe.
func (p *Place) Free(name string) {
	p.Helper()
	p.Until("somebody reads "+name, func() bool {
		f, err := os.OpenFile(filepath.Join(p.Dir, name), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		_, err = f.WriteString("go\n")
		return err == nil && f.Close() == nil
	})
}

// Proc is a process of a place.
type Proc struct {
	PID, Parent int
	Line        string // its arguments, with blanks between them
	Task        string // whose mark it carries
}

// Role is the first word behind drover, such as host or keeper, or empty.
func (x Proc) Role() string {
	if f := strings.Fields(x.Line); len(f) > 1 && strings.HasPrefix(filepath.Base(f[0]), "drover") {
		return f[1]
	}
	return ""
}

// Procs are the live processes of the place with a text in their command line.
func (p *Place) Procs(text string) []Proc {
	return slices.DeleteFunc(Marked(p.Work), func(x Proc) bool { return !strings.Contains(x.Line, text) })
}

// Marked are the live processes with a value of [Mark]. Zombies are not among them.
func Marked(value string) (out []Proc) {
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		env, dir := strings.Split(string(data), "\x00"), filepath.Dir(name)
		pid, notNumber := strconv.Atoi(filepath.Base(dir))
		if err != nil || notNumber != nil || !slices.Contains(env, Mark+"="+value) {
			continue // it has ended, or belongs to another place
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		x := Proc{PID: pid, Parent: ParentOf(pid), Line: strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))}
		for _, kv := range env {
			if id, ok := strings.CutPrefix(kv, "DROVER_TASK_ID="); ok {
				x.Task = id
			}
		}
		out = append(out, x)
	}
	return out
}

// Of are the processes with a role.
func (p *Place) Of(role string) []Proc {
	return slices.DeleteFunc(p.Procs("drover"), func(x Proc) bool { return x.Role() != role })
}

// Quit asks hosts and whoever was called by hand to end, as a shutdown does.
func (p *Place) Quit() {
	for _, x := range p.Procs("drover") {
		if x.Role() != "keeper" && x.Task == "" {
			_ = syscall.Kill(x.PID, syscall.SIGTERM) // it may end by itself at this moment
		}
	}
}

// End asks for the end, and ends what is left after a while. That is an error, but for
// the processes in spared.
func (p *Place) End(patience time.Duration, spared ...int) {
	p.Quit()
	left := func() []Proc {
		return slices.DeleteFunc(p.Procs(""), func(x Proc) bool { return slices.Contains(spared, x.PID) })
	}
	if !waittest.Until(patience, func() bool { return len(left()) == 0 }) {
		for _, x := range left() {
			p.Errorf("left running: %d %s", x.PID, x.Line)
			_ = syscall.Kill(x.PID, syscall.SIGKILL)
		}
	}
	if err := os.RemoveAll(p.Sockets); err != nil {
		p.Error(err)
	}
}

// ParentOf is the parent of a process, or 0.
func ParentOf(pid int) int {
	if f := stat(pid); len(f) > 1 {
		n, _ := strconv.Atoi(f[1])
		return n
	}
	return 0
}

// StateOf is the letter that the kernel has for a process, X if there is none.
func StateOf(pid int) string {
	if f := stat(pid); len(f) > 0 {
		return f[0]
	}
	return "X"
}

// stat is what the kernel says of a process, from its state on.
func stat(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.Fields(rest)
}

// Alive reports whether a process has not ended. While one of its threads is there, so
// are its sockets.
func Alive(pid int) bool {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	state := StateOf(pid)
	return state != "X" && (state != "Z" || len(threads) > 1)
}

// Until waits for what must come.
func (p *Place) Until(what string, yes func() bool) {
	p.Helper()
	if !waittest.Until(Patience, yes) {
		p.Fatalf("it does not come: %s", what)
	}
}
