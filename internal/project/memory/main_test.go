package memory

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays other processes: with this variable set it does what the
// word says, in the folder that the next one names.
const (
	playVariable = "MEMORY_TEST_PLAY"
	dirVariable  = "MEMORY_TEST_DIR"
)

func TestMain(m *testing.M) {
	if word := os.Getenv(playVariable); word != "" {
		os.Exit(play(word, At(os.Getenv(dirVariable))))
	}
	goleak.VerifyTestMain(m)
}

// play is one process. It says on stdout how far it has come, and goes on when its
// stdin ends.
func play(word string, s *Store) int {
	wait := func() { _, _ = io.Copy(io.Discard, os.Stdin) }
	switch word {
	case "hold":
		l, err := s.Acquire()
		if err != nil {
			fmt.Println("lost", err)
			wait()
			return 0
		}
		fmt.Println("won")
		wait()
		if err := l.Done(); err != nil {
			fmt.Println(err)
			return 1
		}
	case "add":
		wait()
		for i := range 10 {
			if _, err := s.Add(context.Background(), fmt.Sprint("process ", os.Getpid()), fmt.Sprint("note ", i)); err != nil {
				fmt.Println(err)
				return 1
			}
		}
		fmt.Println("added")
	}
	return 0
}

// player is a process of the test.
type player struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, word string, s *Store) *player {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &player{cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), playVariable+"="+word, dirVariable+"="+s.Dir())
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.in.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// line is the next thing that the process says.
func (p *player) line(t *testing.T) string {
	t.Helper()
	text, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the process says nothing: %v", err)
	}
	return strings.TrimSpace(text)
}

// goOn lets the process come to its end, which must be good.
func (p *player) goOn(t *testing.T) {
	t.Helper()
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// kill ends it at once.
func (p *player) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
}

func at(t *testing.T) *Store {
	t.Helper()
	return At(t.TempDir() + "/memory")
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a file of the folder as somebody else would.
func put(t *testing.T, s *Store, name, text string) {
	t.Helper()
	ok(t, s.Ensure())
	ok(t, os.WriteFile(s.Dir()+"/"+name, []byte(text), 0o600))
}

func got(t *testing.T, s *Store, name string) string {
	t.Helper()
	data, err := os.ReadFile(s.Dir() + "/" + name)
	ok(t, err)
	return string(data)
}

// past is a time that file systems keep as it is.
func past(days int) time.Time { return time.Date(2026, 1, days, 3, 4, 5, 0, time.UTC) }
