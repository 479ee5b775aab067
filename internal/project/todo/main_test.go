package todo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/test/racetest"
)

// TestMain also plays another process: one that counts, one that changes a list
// until it is killed, and one that holds the lock.
func TestMain(m *testing.M) {
	plays := map[string]func(s *Store) error{"count": playCount, "change": playChange, "hold": playHold}
	if play, ok := plays[os.Getenv("TODO_TEST_PLAY")]; ok {
		if err := play(At(os.Getenv("TODO_TEST_DIR"), false)); err != nil {
			fmt.Println("error:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func player(t *testing.T, play, dir string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), "TODO_TEST_PLAY="+play, "TODO_TEST_DIR="+dir), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

func list(t *testing.T, s *Store) List {
	t.Helper()
	l, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func create(t *testing.T, s *Store, subject string, after ...ID) Item {
	t.Helper()
	it, err := s.Create(t.Context(), Draft{Subject: subject, BlockedBy: after})
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func update(t *testing.T, s *Store, id ID, p Patch) Change {
	t.Helper()
	c, err := s.Update(t.Context(), id, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const writers = 16

// Of each hundred changes of a writer, ten add a to-do, two raise a number of #1
// by compare and swap, and the others set a key of #1 that is the writer's own.
var (
	changes  = racetest.Rounds(1000)
	hundreds = changes / 100
	adds     = 10 * hundreds
	swaps    = 2 * hundreds
)

func count(ctx context.Context, s *Store, who string) error {
	for i := range changes {
		var err error
		switch {
		case i%10 == 9:
			_, err = s.Create(ctx, Draft{Subject: "one of many"})
		case i%50 == 0:
			err = swap(ctx, s)
		default:
			_, err = s.Update(ctx, 1, Patch{Metadata: map[string]json.RawMessage{who: json.RawMessage(strconv.Itoa(i))}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func swap(ctx context.Context, s *Store) error {
	for {
		one, err := s.peek(ctx, 1)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(one.Metadata["n"]))
		if err != nil {
			return err
		}
		_, err = s.Update(ctx, 1, Patch{Revision: one.Revision, Metadata: map[string]json.RawMessage{"n": json.RawMessage(strconv.Itoa(n + 1))}})
		if !errors.Is(err, ErrChanged) {
			return err
		}
	}
}

// peek reads one to-do.
func (s *Store) peek(ctx context.Context, id ID) (it Item, err error) {
	err = s.locked(ctx, false, func(f *folder) error {
		it, err = f.item(id)
		return err
	})
	return it, err
}

func playCount(s *Store) error { return count(context.Background(), s, os.Getenv("TODO_TEST_WHO")) }

func counted(t *testing.T, s *Store) {
	t.Helper()
	l := list(t, s)
	one, _ := l.Get(1)
	if got, want := string(one.Metadata["n"]), strconv.Itoa(writers*swaps); got != want {
		t.Errorf("counted to %s, want %s", got, want)
	}
	if want := 1 + writers*(changes-adds); one.Revision != want {
		t.Errorf("revision %d, want %d: changes were lost", one.Revision, want)
	}
	for i := range writers {
		if got := string(one.Metadata[fmt.Sprint("w", i)]); got != strconv.Itoa(changes-2) {
			t.Errorf("the last change of writer %d is %q", i, got)
		}
	}
	if got, want := len(l.Items), 1+writers*adds; got != want || len(l.Problems) != 0 {
		t.Errorf("%d to-dos, want %d; problems %v", got, want, l.Problems)
	}
	if last := l.Items[len(l.Items)-1].ID; int(last) != len(l.Items) {
		t.Errorf("the last number is %d of %d", last, len(l.Items))
	}
}

func startCount(t *testing.T) *Store {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "todo") // a disk that others use would take most of the time
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := At(filepath.Join(dir, "list"), false)
	if _, err := s.Create(t.Context(), Draft{Subject: "counter", Metadata: map[string]json.RawMessage{"n": json.RawMessage("0")}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestProcesses(t *testing.T) {
	s := startCount(t)
	cmds := make([]*exec.Cmd, writers)
	out := make([]strings.Builder, writers)
	for i := range cmds {
		cmds[i] = player(t, "count", s.dir, fmt.Sprint("TODO_TEST_WHO=w", i))
		cmds[i].Stdout = &out[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("writer %d: %v: %s", i, err, &out[i])
		}
	}
	t.Logf("%d changes by %d processes: %s each", writers*changes, writers, time.Since(began)/time.Duration(writers*changes))
	counted(t, s)
}

func TestGoroutines(t *testing.T) {
	s := startCount(t)
	var all sync.WaitGroup
	began := time.Now()
	for i := range writers {
		all.Go(func() {
			if err := count(t.Context(), s, fmt.Sprint("w", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("%d changes by %d goroutines: %s each", writers*changes, writers, time.Since(began)/time.Duration(writers*changes))
	counted(t, s)
}

// playChange makes random changes, telling each one that was acknowledged.
func playChange(s *Store) error {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	status := []Status{Pending, InProgress, Completed}
	for {
		l, err := s.List(ctx)
		if err != nil {
			return err
		}
		pick := func() ID { return l.Items[r.IntN(len(l.Items))].ID }
		switch n := r.IntN(10); {
		case len(l.Items) < 5 || n < 4 && len(l.Items) < 40:
			it, err := s.Create(ctx, Draft{Subject: "made"})
			if err != nil {
				return err
			}
			fmt.Println("made", int(it.ID))
		case n < 6:
			id := pick()
			if _, err := s.Delete(ctx, id); err != nil {
				return err
			}
			fmt.Println("gone", int(id))
		case n < 8:
			var circle *Circle
			if _, err := s.Update(ctx, pick(), Patch{AddBlocks: []ID{pick(), pick()}, AddBlockedBy: []ID{pick()}}); err != nil && !errors.As(err, &circle) {
				return err
			}
		default:
			if _, err := s.Update(ctx, pick(), Patch{Status: &status[r.IntN(3)]}); err != nil {
				return err
			}
		}
	}
}

// TestKill ends a writer by KILL at random moments. What it acknowledged is
// there, nothing is damaged, and no number comes twice.
func TestKill(t *testing.T) {
	s := At(filepath.Join(t.TempDir(), "list"), false)
	there, high := map[ID]bool{}, ID(0)
	for range 30 {
		cmd := player(t, "change", s.dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		gone := map[ID]bool{}
		read := func() bool {
			if !lines.Scan() {
				return false
			}
			word, number, _ := strings.Cut(lines.Text(), " ")
			id, err := ParseID(number)
			if err != nil {
				t.Fatalf("the writer says %q", lines.Text())
			}
			if word == "gone" {
				gone[id] = true
				delete(there, id)
				return true
			}
			if id <= high {
				t.Errorf("number %s was given again after %s", id, high)
			}
			there[id], high = true, id
			return true
		}
		for range 1 + rand.IntN(20) {
			if !read() {
				t.Fatal("the writer ended by itself")
			}
		}
		_ = cmd.Process.Kill()
		for read() {
		}
		_ = cmd.Wait()

		l := list(t, s)
		if len(l.Problems) > 0 {
			t.Fatalf("after a kill: %v", l.Problems)
		}
		missing := 0
		for id := range there {
			if _, ok := l.Get(id); !ok {
				missing++ // its deletion may have been under way
				delete(there, id)
			}
		}
		if missing > 1 {
			t.Errorf("%d acknowledged to-dos are gone", missing)
		}
		for _, it := range l.Items {
			if gone[it.ID] {
				t.Errorf("%s came back", it.ID)
			}
			there[it.ID], high = true, max(high, it.ID)
		}
	}
	create(t, s, "still writable")
	if names, _ := filepath.Glob(filepath.Join(s.dir, ".tmp-"+"*")); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func playHold(s *Store) error {
	f, err := open(context.Background(), s.dir, true, false)
	if err != nil {
		return err
	}
	fmt.Println("held")
	_, err = unix.Read(0, make([]byte, 1)) // until stdin ends
	f.close()
	return err
}

// TestHeld: who waits for a lock can be called off, and a holder's death frees it.
func TestHeld(t *testing.T) {
	s := At(filepath.Join(t.TempDir(), "list"), false)
	cmd := player(t, "hold", s.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder: %q, %v", line, err)
	}
	why := errors.New("called off")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { // ends with Create
		_, err := s.Create(ctx, Draft{Subject: "waits"})
		done <- err
	}()
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("Create = %v, want %v", err, why)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if it := create(t, s, "free"); it.ID != 1 {
		t.Errorf("the first number is %s", it.ID)
	}
}
