package usage

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
)

func call(agentType, model string, output int64, usd float64) Call {
	c := Call{Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), AgentID: "a00000001", AgentType: agentType, Model: model,
		Usage: agent.Usage{InputTokens: 100, OutputTokens: output}, DurationMS: 250}
	if usd >= 0 {
		c.USD = &usd
	}
	return c
}

func readAll(t *testing.T, path string) (calls []Call, skipped int) {
	t.Helper()
	skipped, err := Read(path, func(c Call) { calls = append(calls, c) })
	if err != nil {
		t.Fatal(err)
	}
	return calls, skipped
}

func TestReadWhatWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	if calls, skipped := readAll(t, path); len(calls)+skipped != 0 {
		t.Errorf("of a file that is not there: %v", calls)
	}
	f := &file{path: path}
	want := []Call{call("main", "sonnet", 10, 0.5), call("explore", "llama", 20, -1)}
	for _, c := range want {
		if err := errors.Join(f.add(c), f.flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	got, skipped := readAll(t, path)
	if len(got) != 2 || skipped != 0 || got[0].Usage != want[0].Usage || *got[0].USD != 0.5 || got[1].USD != nil || got[1].AgentType != "explore" || !got[1].Time.Equal(want[1].Time) {
		t.Errorf("read %+v, %d", got, skipped)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if data, _ := os.ReadFile(path); !bytes.Contains(data, []byte(`"cost_usd":null`)) {
		t.Errorf("an unknown price is not written as such: %s", data)
	}
}

// A kill cuts the last line. It is passed over, and the next one is whole.
func TestTornLine(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	f := &file{path: whole}
	if err := errors.Join(f.add(call("main", "m", 1, 1)), f.add(call("main", "m", 2, 1)), f.flush(), f.close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(data, '\n') + 1
	for cut := range data {
		path := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		f := &file{path: path}
		if err := errors.Join(f.add(call("next", "m", 3, 1)), f.flush(), f.close()); err != nil {
			t.Fatal(err)
		}
		calls, skipped := readAll(t, path)
		wholeLines := 0
		if cut >= first-1 { // all but the end of the line is there
			wholeLines = 1
		}
		torn := cut != 0 && cut != first && cut != first-1 && cut != len(data)-1
		if cut == len(data)-1 {
			wholeLines = 2
		}
		if len(calls) != wholeLines+1 || calls[len(calls)-1].AgentType != "next" || skipped > 0 != torn {
			t.Fatalf("cut at %d: %d calls, %d passed over", cut, len(calls), skipped)
		}
	}
}

func TestReadNonsense(t *testing.T) {
	good := `{"time":"2026-11-20T12:00:00Z","agent_id":"a","agent_type":"t","model":"m","input_tokens":1,"output_tokens":1,"cost_usd":0.1,"duration_ms":1}`
	lines := []string{
		"{}", "[]", "null", "what", `{"time":"2026-11-20T12:00:00Z","input_tokens":-5,"output_tokens":1,"cost_usd":null}`,
		strings.Replace(good, `0.1`, `-0.1`, 1), strings.Replace(good, `"output_tokens":1`, `"output_tokens":9223372036854775807`, 1),
		strings.Replace(good, `0.1`, `1e300`, 1), strings.Replace(good, `"t"`, `"`+strings.Repeat("t", 2*maxLine)+`"`, 1),
	}
	path := filepath.Join(t.TempDir(), FileName)
	text := good + "\n" + strings.Join(lines, "\n") + "\n\n" + strings.Replace(good, `"t"`, `"\u001b[31mred\u202e"`, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	calls, skipped := readAll(t, path)
	if len(calls) != 2 || skipped != len(lines) {
		t.Errorf("%d calls, %d passed over; want 2 and %d", len(calls), skipped, len(lines))
	}
	if calls[1].AgentType != "[31mred" {
		t.Errorf("a name that would live on a terminal: %q", calls[1].AgentType)
	}
}

func TestNoLinks(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, FileName)
	if err := errors.Join(os.WriteFile(target, []byte("x"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: link}); err == nil {
		t.Error("a link was followed for writing")
	}
	if _, err := Read(link, func(Call) {}); err == nil {
		t.Error("a link was followed for reading")
	}
	if err := (&file{path: dir}).begin(); err == nil {
		t.Error("a folder was opened")
	}
}

// small takes a few bytes more, as a disk that fills up.
type small struct {
	io.WriteCloser
	room int
}

func (s *small) Write(p []byte) (int, error) {
	if len(p) <= s.room {
		s.room -= len(p)
		return s.WriteCloser.Write(p)
	}
	n, err := s.WriteCloser.Write(p[:s.room])
	s.room -= n
	return n, errors.Join(err, io.ErrShortWrite)
}

// Whatever part of a line got onto a full disk, all calls are there once it has
// room, each once.
func TestDiskFull(t *testing.T) {
	for room := range 500 {
		path := filepath.Join(t.TempDir(), FileName)
		f := &file{path: path}
		if err := f.begin(); err != nil {
			t.Fatal(err)
		}
		disk := &small{WriteCloser: f.f, room: room}
		f.f = disk
		failed := false
		for i := range 3 {
			if err := f.add(call("main", "m", int64(i+1), 0)); err != nil {
				t.Fatal(err)
			}
			err := f.flush()
			failed = failed || err != nil
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Fatalf("the error does not name the file: %v", err)
			}
			if i == 1 {
				disk.room = 1 << 20
			}
		}
		if !failed {
			t.Fatal("the disk was never full")
		}
		if err := errors.Join(f.flush(), f.close()); err != nil {
			t.Fatal(err)
		}
		calls, _ := readAll(t, path)
		if len(calls) != 3 || calls[0].OutputTokens != 1 || calls[1].OutputTokens != 2 || calls[2].OutputTokens != 3 {
			t.Fatalf("with room for %d bytes: %d calls", room, len(calls))
		}
		if failed = len(f.owed) > 0; failed {
			t.Fatal("something is still owed")
		}
		if room > 2*200 {
			break
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("{\"time\":\"2026-11-20T12:00:00Z\",\"input_tokens\":1,\"cost_usd\":1}\n"))
	f.Add([]byte("\n\n{}\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := NewLedger(ByAgent, ByModel)
		n := 0
		skipped, err := scan(bytes.NewReader(data), func(c Call) {
			n++
			l.Add(c)
		})
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(data, []byte("\n")) + 1; n+skipped > lines {
			t.Fatalf("%d calls and %d passed over of %d lines", n, skipped, lines)
		}
		if s := l.Total(); s.Calls != n || s.USD < 0 || s.Input < 0 || s.Output < 0 {
			t.Fatalf("sum %+v", s)
		}
	})
}
