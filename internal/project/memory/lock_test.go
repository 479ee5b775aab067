package memory

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/platform/home"
)

// last is when the store says that memory was consolidated last.
func last(t testing.TB, s *Store) time.Time {
	t.Helper()
	st, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	return st.Last
}

// stamp is the time of the file itself; zero: there is none.
func stamp(t testing.TB, s *Store) time.Time {
	t.Helper()
	info, err := os.Stat(s.Dir() + "/" + markName)
	if errors.Is(err, os.ErrNotExist) {
		return time.Time{}
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// consolidated makes a store whose last consolidation was then.
func consolidated(t *testing.T, then time.Time) *Store {
	t.Helper()
	s := at(t)
	put(t, s, markName, "")
	ok(t, os.Chtimes(s.Dir()+"/"+markName, then, then))
	return s
}

func TestLockDone(t *testing.T) {
	s := consolidated(t, past(1))
	before := time.Now().Add(-time.Second)
	l, err := s.Acquire()
	ok(t, err)
	if !l.Prior().Equal(past(1)) || !last(t, s).Equal(past(1)) {
		t.Errorf("prior %s, last %s", l.Prior(), last(t, s))
	}
	if st, _ := s.State(); st.PID != os.Getpid() {
		t.Errorf("held by %d", st.PID)
	}
	ok(t, l.Done())
	if got := stamp(t, s); got.Before(before) || !last(t, s).Equal(got) {
		t.Errorf("the file says %s, and the store %s", got, last(t, s))
	}
	if st, _ := s.State(); st.PID != 0 {
		t.Errorf("still held by %d", st.PID)
	}
	ok(t, l.Rollback()) // does nothing any more
	if got := stamp(t, s); got.Before(before) {
		t.Errorf("a rollback after the end has changed the time to %s", got)
	}
}

func TestLockRollback(t *testing.T) {
	for name, prior := range map[string]time.Time{"never": {}, "before": past(2)} {
		t.Run(name, func(t *testing.T) {
			s := at(t)
			if !prior.IsZero() {
				s = consolidated(t, prior)
			}
			l, err := s.Acquire()
			ok(t, err)
			if !prior.IsZero() && stamp(t, s).Equal(prior) {
				t.Error("the claim does not show in the file")
			}
			ok(t, l.Rollback())
			if got := stamp(t, s); !got.Equal(prior) {
				t.Errorf("the time is %s, want %s", got, prior)
			}
			again, err := s.Acquire()
			ok(t, err)
			ok(t, again.Done())
		})
	}
}

func TestLockHeld(t *testing.T) {
	s := at(t)
	l, err := s.Acquire()
	ok(t, err)
	var held *HeldError
	if _, err := s.Acquire(); !errors.Is(err, ErrHeld) || !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("a second one gives %v", err)
	}
	ok(t, s.Recover())
	if st, _ := s.State(); st.PID != os.Getpid() {
		t.Error("a living holder was robbed")
	}
	ok(t, l.Rollback())
}

// Of many processes that come at once one wins.
func TestLockRace(t *testing.T) {
	s := consolidated(t, past(3))
	players := make([]*player, 6)
	for i := range players {
		players[i] = start(t, "hold", s)
	}
	won := 0
	for _, p := range players {
		switch text := p.line(t); {
		case text == "won":
			won++
		case !strings.Contains(text, "being consolidated by "):
			t.Errorf("a process that lost says %q", text)
		}
	}
	if won != 1 {
		t.Errorf("%d processes have the lock", won)
	}
	for _, p := range players {
		p.goOn(t)
	}
	if !last(t, s).After(past(3)) {
		t.Error("the winner has not marked its end")
	}
}

// What a killed holder has left is undone: by whoever looks, and by who comes next.
func TestLockKilled(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, s *Store){
		"recover": func(t *testing.T, s *Store) { ok(t, s.Recover()) },
		"acquire": func(t *testing.T, s *Store) {
			l, err := s.Acquire()
			ok(t, err)
			if !l.Prior().Equal(past(4)) {
				t.Errorf("prior is %s", l.Prior())
			}
			ok(t, l.Rollback())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := consolidated(t, past(4))
			p := start(t, "hold", s)
			if text := p.line(t); text != "won" {
				t.Fatal(text)
			}
			if st, _ := s.State(); st.PID != p.cmd.Process.Pid || !st.Last.Equal(past(4)) {
				t.Errorf("state %+v", st)
			}
			p.kill(t)
			if stamp(t, s).Equal(past(4)) {
				t.Fatal("the holder had not claimed it")
			}
			if st, _ := s.State(); st.PID != 0 || !st.Last.Equal(past(4)) {
				t.Errorf("after the death: state %+v", st)
			}
			next(t, s)
			if got := stamp(t, s); !got.Equal(past(4)) {
				t.Errorf("the time is %s", got)
			}
		})
	}
}

// Every way through the lock leaves the time of the last one that was done.
func TestLockHistory(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		s := At(dir + "/" + strings.Repeat("m", 1+n%20) + time.Now().Format("150405.000000000"))
		var want time.Time
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			l, err := s.Acquire()
			if err != nil {
				r.Fatal(err)
			}
			if !l.Prior().Equal(want) {
				r.Fatalf("prior %s, want %s", l.Prior(), want)
			}
			switch rapid.SampledFrom([]string{"done", "rollback", "die"}).Draw(r, "end") {
			case "done":
				if err := l.Done(); err != nil {
					r.Fatal(err)
				}
				want = stamp(t, s)
			case "rollback":
				if err := l.Rollback(); err != nil {
					r.Fatal(err)
				}
			case "die": // the kernel takes the lock, and nobody writes
				l.close()
			}
			if got := last(t, s); !got.Equal(want) {
				r.Fatalf("last %s, want %s", got, want)
			}
			if rapid.Bool().Draw(r, "recover") {
				if err := s.Recover(); err != nil {
					r.Fatal(err)
				}
			}
		}
	})
}

func TestLockFile(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		says string // empty: it works
	}{
		"garbage": {func(t *testing.T, path string) { ok(t, os.WriteFile(path, []byte("not json"), 0o600)) }, ""},
		"newer":   {func(t *testing.T, path string) { ok(t, os.WriteFile(path, []byte(`{"v":2}`), 0o600)) }, "newer Drover"},
		"link":    {func(t *testing.T, path string) { ok(t, os.Symlink("/etc/passwd", path)) }, "symbolic link"},
		"pipe":    {mkfifo, "not a regular file"},
		"folder":  {func(t *testing.T, path string) { ok(t, os.Mkdir(path, 0o700)) }, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := at(t)
			ok(t, s.Ensure())
			c.make(t, s.Dir()+"/"+markName)
			l, err := s.Acquire()
			if c.says == "" {
				ok(t, err)
				ok(t, l.Done())
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it gives %v", err)
			}
			if held, _ := tryAgain(s); held {
				t.Error("the lock of the kernel was kept after an error")
			}
		})
	}
}

// tryAgain reports whether the lock of the kernel is held.
func tryAgain(s *Store) (bool, error) {
	root, err := s.open(false)
	if err != nil {
		return false, err
	}
	defer root.Close()
	unlock, err := root.TryLock(markLock)
	if err == nil {
		unlock()
	}
	return errors.Is(err, home.ErrLocked), err
}

func TestDue(t *testing.T) {
	rule := Rule{Every: 24 * time.Hour, Sessions: 5}
	now := past(10)
	for name, c := range map[string]struct {
		last     time.Time
		sessions int
		want     bool
	}{
		"never":      {time.Time{}, 5, true},
		"neverfew":   {time.Time{}, 4, false},
		"both":       {past(9), 5, true},
		"early":      {past(9).Add(time.Second), 50, false},
		"few":        {past(1), 4, false},
		"clockahead": {past(20), 5, true},
	} {
		if got := rule.Due(now, c.last, c.sessions); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
