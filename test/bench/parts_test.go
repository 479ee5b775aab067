//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"mvdan.cc/sh/v3/syntax"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/task"
)

// sample is a record as a command has it.
func sample(i int) task.Record {
	now := time.Now().UTC()
	return task.Record{ID: task.ID(fmt.Sprintf("b%08d", i)), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Running, Backgrounded: true,
		Description: "make check of something", Command: "make check PKG=./something", Cwd: "/home/somebody/project", CreateTime: now, StartTime: &now,
		OutputFile: "/home/somebody/.local/state/drover/projects/p/s/tasks/b.output"}
}

// each is the time in µs that one of n takes, done one after the other.
func each(n int, do func(i int)) float64 {
	begin := time.Now()
	for i := range n {
		do(i)
	}
	return us(time.Since(begin)) / float64(n)
}

func (t *bench) journal() {
	j, err := journal.Open(filepath.Join(t.temp(), "j.db"), journal.Options{})
	t.must(err)
	defer j.Close()
	f, err := os.OpenFile(filepath.Join(t.temp(), "f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	t.must(err)
	defer f.Close()
	rec := sample(1)
	line, err := json.Marshal(rec)
	t.must(err)
	n := t.size(10_000, 2_000)
	entry := lifecycle.Entry{Verb: task.Begin, At: time.Now(), Task: rec}
	write := func() float64 { return each(n, func(int) { _, err := f.Write(line); t.must(err) }) }
	peer, closePeer := t.sqlite()
	defer closePeer()
	ours, floor := turns(t.runs(9), func() float64 { return each(n, func(int) { t.append(j, entry) }) },
		func() float64 { return each(n, func(i int) { peer(i, line) }) })
	t.add(row{name: "state change, alone", unit: "µs", ours: ours, floor: floor, of: "the same row in a bare SQLite loop", target: 25, note: fmt.Sprintf("write(2): %.2f µs", write())})
	ours, floor = turns(t.runs(5),
		func() float64 {
			begin := time.Now()
			t.side(2*n, 64, func() { t.append(j, entry) })
			return float64(2*n) / 1000 / time.Since(begin).Seconds()
		},
		func() float64 { return 1000 / write() })
	t.add(row{name: "state changes, 64 writers", unit: "k/s", ours: ours, floor: floor, of: "write(2)", target: 80, least: true})
}

// sqlite inserts the rows of the log and does nothing else.
func (t *bench) sqlite() (insert func(i int, record []byte), done func()) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.temp(), "bare.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	t.must(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("CREATE TABLE events (seq INTEGER PRIMARY KEY, task_id TEXT, verb TEXT, at INTEGER, record BLOB); CREATE INDEX events_by_task ON events (task_id, seq)")
	t.must(err)
	stmt, err := db.Prepare("INSERT INTO events (task_id, verb, at, record) VALUES (?, ?, ?, ?)")
	t.must(err)
	return func(i int, record []byte) {
		_, err := stmt.Exec("b00000001", "begin", i, record)
		t.must(err)
	}, func() { t.must(errors.Join(stmt.Close(), db.Close())) }
}

// counted is a log that is not there.
type counted struct{ n atomic.Int64 }

func (c *counted) Append(_ context.Context, e lifecycle.Entry) (task.Seq, error) {
	seq := task.Seq(c.n.Add(1))
	e.Committed(seq)
	return seq, nil
}

func (c *counted) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	seqs := make([]task.Seq, len(entries))
	for i, e := range entries {
		seqs[i], _ = c.Append(ctx, e)
	}
	return seqs, make([]error, len(entries))
}

func (*counted) Post(context.Context, task.Message) (task.Seq, error) { panic("not used") }

// changing changes its own state as often as its input says.
type changing struct{ took chan time.Duration }

func (changing) Kind() task.Kind             { return task.LocalBash }
func (changing) Check(json.RawMessage) error { return nil }

func (c changing) Run(ctx context.Context, h task.Host) (task.Result, error) {
	var n int
	if err := json.Unmarshal(h.Input(), &n); err != nil {
		return task.Result{}, err
	}
	begin := time.Now()
	for range n {
		if err := h.Checkpoint(ctx, nil); err != nil {
			return task.Result{}, err
		}
	}
	if n > 0 {
		c.took <- time.Since(begin)
	}
	return task.Result{}, nil
}

func (t *bench) registry() {
	const changes = 20_000
	d := changing{make(chan time.Duration, 1)}
	s := supervise.New(supervise.Config{Log: &counted{}})
	defer s.Close()
	start := func(n int) {
		_, err := s.Start(context.Background(), d, task.Spec{Input: json.RawMessage(fmt.Sprint(n))})
		t.must(err)
	}
	cost := func() float64 {
		var all []float64
		for range t.runs(9) {
			start(changes)
			all = append(all, us(<-d.took)/changes)
		}
		return median(all)
	}
	small, large := 1000, t.size(100_000, 20_000)
	begin := time.Now()
	for range small {
		start(0)
	}
	first := us(time.Since(begin)) / float64(small)
	few := cost()
	begin = time.Now()
	for range large - small {
		start(0)
	}
	later := us(time.Since(begin)) / float64(large-small)
	many := cost()
	t.add(row{name: fmt.Sprintf("registry update with %d tasks, in memory", small), unit: "µs", ours: few, target: 2},
		row{name: fmt.Sprintf("registry update with %d tasks, in memory", large), unit: "µs", ours: many, floor: few, of: "with 1,000", target: 2},
		row{name: fmt.Sprintf("start of a task that does nothing, up to %d", large), unit: "µs", ours: later, floor: first, of: "up to 1,000"})
}

func (t *bench) subscriber() {
	dir := t.temp()
	s := t.open(dir, "")
	defer s.Close()
	t.command(s, dir, "true")
	info, err := s.Info(context.Background())
	t.must(err)
	ctx, cancel := context.WithCancelCause(context.Background())
	client := control.Dial(info.Socket)
	defer client.Close()
	n := t.size(200, 60)
	var late []float64
	var reader sync.WaitGroup
	ready := make(chan struct{})
	reader.Go(func() {
		close(ready)
		for e, err := range client.Events(ctx, s.Newest()) {
			at := time.Now()
			if err != nil {
				return
			}
			late = append(late, us(at.Sub(e.At)))
			if len(late) >= 3*n {
				return
			}
		}
	})
	<-ready
	for range n {
		t.command(s, dir, "true")
	}
	reader.Wait()
	cancel(context.Canceled)
	t.add(row{name: "event to a subscriber over the socket, p50", unit: "µs", ours: median(late), target: 200, note: fmt.Sprintf("from the decision, commit included; p99 %.0f µs", quantile(late, 0.99))})

	j, err := journal.Open(filepath.Join(dir, "j.db"), journal.Options{})
	t.must(err)
	entry := lifecycle.Entry{Verb: task.Begin, At: time.Now(), Task: sample(1)}
	// A writer that pauses between two changes, as writers do: the others then
	// have the time to read.
	paced := func() float64 {
		var all []float64
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for range n {
			<-tick.C
			begin := time.Now()
			t.append(j, entry)
			all = append(all, us(time.Since(begin)))
		}
		return median(all)
	}
	ours, floor := turns(3, func() float64 {
		ctx, cancel := context.WithCancelCause(context.Background())
		var all sync.WaitGroup
		from := j.Last()
		for range 100 {
			all.Go(func() {
				for _, err := range j.Events(ctx, from) {
					if err != nil {
						return
					}
				}
			})
		}
		took := paced()
		cancel(errors.New("enough"))
		all.Wait()
		return took
	}, paced)
	t.must(j.Close())
	t.add(row{name: "state change with 100 subscribers, paced", unit: "µs", ours: ours, floor: floor, of: "with none", ratio: 1.3})
}

func (t *bench) tail() {
	path := filepath.Join(t.temp(), "x.output")
	t.must(os.WriteFile(path, bytes.Repeat([]byte("a line of output\n"), 10_000), 0o600))
	f, err := os.Open(path)
	t.must(err)
	defer f.Close()
	const end = 170_000
	buf := make([]byte, 4096)
	n := t.size(20_000, 5_000)
	ours, floor := turns(t.runs(9),
		func() float64 {
			return each(n, func(int) { _, _, err := spool.ReadAt(path, end, 0, false); t.must(err) })
		},
		func() float64 { return each(n, func(int) { _, _ = unix.Pread(int(f.Fd()), buf, end) }) })
	t.add(row{name: "polling an idle file, opened each time", unit: "µs", ours: ours, floor: floor, of: "pread", note: "only while somebody watches"})
}

// said is a message of 4 KB, as long as they are in long sessions.
func said(i int) agent.Record {
	role := agent.User
	if i%2 == 1 {
		role = agent.Assistant
	}
	return agent.Record{Message: agent.NewMessage(role, agent.TextBlock(strings.Repeat("some words of a tool's output\n", 137)))}
}

func (t *bench) transcript() {
	const agents = 300
	n := t.size(100, 20)
	r := said(0)
	size := float64(len(r.Message.Encoded()))
	line := append(bytes.Clone(r.Message.Encoded()), '\n')
	ours, floor := turns(t.runs(5), func() float64 {
		dir := t.temp()
		all := make([]*agent.Transcript, agents)
		for i := range all {
			var err error
			all[i], _, err = agent.OpenTranscript(filepath.Join(dir, fmt.Sprint(i)), agent.Meta{})
			t.must(err)
		}
		var next atomic.Int64
		begin := time.Now()
		t.side(agents*n, 2, func() { t.must(all[next.Add(1)%agents].Append(r)) })
		took := time.Since(begin)
		for _, tr := range all {
			t.must(tr.Close())
		}
		t.must(os.RemoveAll(dir))
		return size * agents * float64(n) / 1e6 / took.Seconds()
	}, func() float64 {
		path := filepath.Join(t.dir, "lines")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		t.must(err)
		begin := time.Now()
		for range agents * n {
			_, err := f.Write(line)
			t.must(err)
		}
		took := time.Since(begin)
		f.Close()
		t.must(os.Remove(path))
		return size * agents * float64(n) / 1e6 / took.Seconds()
	})
	t.add(row{name: "transcript append, 300 agents", unit: "MB/s", ours: ours, floor: floor, of: "write(2), one file", target: 300, least: true})
}

func (t *bench) resume() {
	n := t.size(100_000, 10_000)
	path := filepath.Join(t.temp(), "t.jsonl")
	tr, _, err := agent.OpenTranscript(path, agent.Meta{})
	t.must(err)
	for i := 0; i < n; i += 100 {
		records := make([]agent.Record, 100)
		for k := range records {
			records[k] = said(i + k)
		}
		t.must(tr.Append(records...))
	}
	t.must(tr.Close())
	info, err := os.Stat(path)
	t.must(err)
	ours, floor := turns(t.runs(5), func() float64 {
		begin := time.Now()
		tr, h, err := agent.OpenTranscript(path, agent.Meta{})
		t.must(err)
		_, err = agent.NewLoop(agent.Config{Model: never{}}, h.Messages)
		t.must(err)
		took := ms(time.Since(begin))
		t.must(tr.Close())
		return took
	}, func() float64 {
		begin := time.Now()
		f, err := os.Open(path)
		t.must(err)
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
		}
		f.Close()
		return ms(time.Since(begin))
	})
	t.add(row{name: fmt.Sprintf("resume of %d messages, %d MB, until ready", n, info.Size()/1e6), unit: "ms", ours: ours, floor: floor, of: "reading the lines", target: 1500 * float64(n) / 100_000})
	const screen = 50
	end := make([]byte, info.Size()*screen/int64(n))
	ours, floor = turns(t.runs(31), func() float64 {
		begin := time.Now()
		last, err := agent.Tail(path, screen)
		t.must(err)
		if len(last) != screen {
			t.Fatalf("%d messages for the first screen, want %d", len(last), screen)
		}
		return ms(time.Since(begin))
	}, func() float64 {
		begin := time.Now()
		f, err := os.Open(path)
		t.must(err)
		_, err = f.ReadAt(end, info.Size()-int64(len(end)))
		t.must(err)
		f.Close()
		return ms(time.Since(begin))
	})
	t.add(row{name: "the same, its last 50 for the first screen", unit: "ms", ours: ours, floor: floor, of: "open and pread", target: 20})
	t.must(os.Remove(path))
}

type never struct{}

func (never) Reply(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) {
	return nil, errors.New("nobody is asked here")
}

func (t *bench) permission() {
	gate, errs := policy.New(policy.Rules{Mode: policy.Default, Allow: []string{"Bash(go test:*)", "Bash(git log:*)", "Bash(make:*)", "Read", "Edit(./src/**)"},
		Deny: []string{"Bash(rm:*)", "Read(./.env)"}, Cwd: t.dir, Home: t.dir, Path: os.Getenv("PATH"), ReadOnlyAuto: true, Headless: true})
	t.must(errors.Join(errs...))
	lines := []string{"go test ./... -run TestX", "git log --oneline | head -20", "cd sub && make check 2>&1 | tail -5", `for f in *.go; do grep -n "x$f" "$f"; done`,
		"rm -rf build", "find . -name '*.go' | xargs wc -l", "curl -s http://localhost | sh"}
	n := t.size(2_000, 500)
	var all []float64
	parser := syntax.NewParser()
	_, floor := turns(t.runs(5), func() float64 {
		for i := range n {
			input, err := json.Marshal(map[string]string{"command": lines[i%len(lines)]})
			t.must(err)
			begin := time.Now()
			_, err = gate.Check(context.Background(), agent.Call{ID: "c", Name: "Bash", Input: input})
			all = append(all, us(time.Since(begin)))
			t.must(err)
		}
		return 0
	}, func() float64 {
		return each(n, func(i int) {
			_, err := parser.Parse(strings.NewReader(lines[i%len(lines)]), "")
			t.must(err)
		})
	})
	sum := 0.0
	for _, one := range all {
		sum += one
	}
	t.add(row{name: "permission decision, p50", unit: "µs", ours: median(all), floor: floor, of: "parse", note: fmt.Sprintf("%.1f k decisions/s", 1000*float64(len(all))/sum)},
		row{name: "permission decision, p99", unit: "µs", ours: quantile(all, 0.99), target: 1000})
}
