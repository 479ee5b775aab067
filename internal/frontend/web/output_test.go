package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/task"
)

// printed is a session with one output.
type printed struct {
	control.API
	data []byte
}

func (p printed) Output(_ context.Context, req control.OutputRequest) (control.Chunk, error) {
	from := min(req.Offset, int64(len(p.data)))
	to := min(from+int64(req.Max), int64(len(p.data)))
	return control.Chunk{Data: p.data[from:to], Offset: from, Next: to, Size: int64(len(p.data))}, nil
}

func TestDrawn(t *testing.T) {
	for text, want := range map[string]string{
		"plain\n":                        "plain\n",
		"<b>&\"\n":                       "&lt;b&gt;&amp;&#34;\n",
		"\x1b[1;31mbad\x1b[0m good\n":    `<span class="b c1">bad</span> good` + "\n",
		"\x1b[38;5;12mx\x1b[39my":        `<span class="c12">x</span>y`,
		"\x1b[38;2;1;2;3;4mx\x1b[my":     `<span class="u">x</span>y`,
		"\x1b[42mx\ny\n":                 `<span class="g2">x</span>` + "\n" + `<span class="g2">y</span>` + "\n",
		"10 %\r\x1b[32m50 %\r100 %\r\n":  `<span class="c2">100 %</span>` + "\n",
		"\x1b]8;;http://x/\x07l\x1b[2Jy": "ly",
	} {
		if got, _ := drawn(text, style{}); got != want {
			t.Errorf("%q is drawn as\n%q, not\n%q", text, got, want)
		}
	}
}

// FuzzDrawn shows that nothing of an output becomes an element but those of its colours, and that parts
// of it are drawn as the whole.
func FuzzDrawn(f *testing.F) {
	f.Add("\x1b[31m<script>alert(1)</script>\x1b[0m\r\n", 7)
	f.Add("\x1b[48;5;300mé\x1b[", 3)
	f.Fuzz(func(t *testing.T, text string, _ int) {
		got, s := drawn(text, style{})
		rest := regexp.MustCompile(`<span class="[a-z0-9 ]+">|</span>`).ReplaceAllString(got, "")
		if strings.ContainsAny(rest, "<>\"'\x1b") {
			t.Fatalf("%q is drawn as %q", text, got)
		}
		if strings.ContainsRune(html.UnescapeString(rest), 0x1b) {
			t.Fatalf("%q is drawn as %q", text, got)
		}
		if again := styleOf(s.classes()); again != s {
			t.Fatalf("style %+v is read as %+v", s, again)
		}
		if n := whole([]byte(text)); n < 0 || n > len(text) || n == 0 && text != "" {
			t.Fatalf("%d of %d bytes", n, len(text))
		}
	})
}

// TestFind looks through an output in steps, and finds each place once.
func TestFind(t *testing.T) {
	var b bytes.Buffer
	for n := 0; b.Len() < 3*searchPart; n++ {
		fmt.Fprintf(&b, "line %d %s\n", n, strings.Repeat("x", n%97))
		if n%1000 == 0 {
			fmt.Fprintf(&b, "needle %d <here>\n", n)
		}
	}
	want := bytes.Count(b.Bytes(), []byte("needle"))
	var found []match
	for from, step := int64(0), 0; ; step++ {
		m, err := find(t.Context(), printed{data: b.Bytes()}, "x", []byte("needle"), from)
		if err != nil || step > 10 {
			t.Fatal(step, err)
		}
		found = append(found, m.Found...)
		if from = m.Next; from >= m.Size {
			break
		}
	}
	if len(found) != want {
		t.Errorf("found %d of %d", len(found), want)
	}
	for _, m := range found {
		if !bytes.HasPrefix(b.Bytes()[m.Offset:], []byte("needle")) {
			t.Errorf("%+v is not there", m)
		}
	}
	many := []byte(strings.Repeat("needle\n", 250))
	m, err := find(t.Context(), printed{data: many}, "x", []byte("needle"), 0)
	if err != nil || len(m.Found) != mostFound {
		t.Fatalf("found %d, %v", len(m.Found), err)
	}
	if more, err := find(t.Context(), printed{data: many}, "x", []byte("needle"), m.Next); err != nil ||
		more.Found[0].Offset != int64(7*mostFound) {
		t.Errorf("goes on at %+v, %v", more.Found[0], err)
	}
}

// huge is a session with one task, of which only the output is asked for.
type huge struct {
	control.API
	rec task.Record
}

// found is how the page finds it.
type found struct{ huge }

func (found) Info() control.Info { return control.Info{Session: "m1", Live: true} }
func (f found) Open(context.Context) (control.API, func(), error) {
	return f.huge, func() {}, nil
}

func (p huge) Get(context.Context, string) (task.Record, error) { return p.rec, nil }
func (p huge) Output(_ context.Context, r control.OutputRequest) (control.Chunk, error) {
	return stored.Output(p.rec, r)
}

// TestHugeOutput reads an output of 5 GB at its end, in the middle and at places that are found: each answer comes
// from a small part of it, and none takes more memory than it shows.
func TestHugeOutput(t *testing.T) {
	const size, middle, most = 5 << 30, 5 << 29, 80 << 20
	file := filepath.Join(t.TempDir(), "huge")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Truncate(size)
	for at, text := range map[int64]string{0: "it begins\n", middle: "\nin the middle\n", size - 60<<20: "\na needle\n", size - 20: "\nthe last line\n"} {
		_, wrong := f.WriteAt([]byte(text), at)
		err = errors.Join(err, wrong)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Skipf("SKIPPED: no file of 5 GB can be made here: %v", err)
	}
	s, url := page(t)
	ended := s.Now()
	one := found{huge{rec: task.Record{ID: "b00000001", Session: "m1", Kind: task.LocalBash, Status: task.Completed, OutputFile: file,
		EndTime: &ended, StartTime: &ended, CreateTime: ended}}}
	s.Sessions = func(context.Context, bool) ([]Session, error) { return []Session{one}, nil }
	paired, _ := pairedCookie(t, s, false)
	cookie := map[string]string{"Cookie": paired}
	for _, c := range []struct{ path, want string }{
		{"/follow/m1/b00000001", "the last line"},
		{fmt.Sprintf("/output/m1/b00000001?offset=%d", int64(middle)), "in the middle"},
		{fmt.Sprintf("/output/m1/b00000001?offset=%d", int64(size-20)), `"ended":true`},
		{fmt.Sprintf("/output/m1/b00000001?offset=%d", int64(2*size)), "is beyond the end"},
		{fmt.Sprintf("/search/m1/b00000001?text=needle&offset=%d", int64(size-70<<20)), "a needle"},
		{"/search/m1/b00000001?text=needle&offset=0", `"found":[]`}, // as far as one request looks
	} {
		var m, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		before := bytesRead()
		_, text, _ := asks(t, http.MethodGet, url+c.path, "", cookie)
		read := bytesRead() - before
		for strings.HasSuffix(c.want, "needle") && !strings.Contains(text, c.want) { // one answer looks for some time: the page asks on
			var part struct{ Next, Size int64 }
			if err := json.Unmarshal([]byte(text), &part); err != nil || part.Next >= size {
				break
			}
			_, text, _ = asks(t, http.MethodGet, url+fmt.Sprintf("/search/m1/b00000001?text=needle&offset=%d", part.Next), "", cookie)
		}
		runtime.ReadMemStats(&after)
		grown := int64(after.HeapInuse) - int64(m.HeapInuse)
		t.Logf("%-60s %d KiB read, heap %+d KiB, %d bytes", c.path, read>>10, grown>>10, len(text))
		if !strings.Contains(text, c.want) || len(text) > 2<<20 { // of 64 KiB of zeros, each is written out
			t.Errorf("%s: %d bytes without %q: %.200s", c.path, len(text), c.want, text)
		}
		if grown > 32<<20 {
			t.Errorf("%s: the heap grows by %d MiB", c.path, grown>>20)
		}
		if read > most {
			t.Errorf("%s: %d MiB are read for the answer", c.path, read>>20)
		}
	}
}

// bytesRead is how much this process has read by now; 0 where the system does not count it.
func bytesRead() (n int64) {
	data, _ := os.ReadFile("/proc/self/io")
	_, _ = fmt.Sscanf(string(data), "rchar: %d", &n)
	return n
}
