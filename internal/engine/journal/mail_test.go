package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// TestMail lets readers read on as mail comes and is acknowledged, and compares what
// they have with the file. More comes than is kept in memory.
func TestMail(t *testing.T) {
	end := time.Now().Add(3 * time.Second)
	rapid.Check(t, func(t *rapid.T) {
		if time.Now().After(end) {
			return
		}
		dir, err := os.MkdirTemp("", "mail")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &mailing{path: filepath.Join(dir, "s.db")}
		m.open(t)
		defer func() { _ = m.j.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"post":         m.post,
			"many":         m.many,
			"notification": m.notification,
			"ack":          m.ack,
			"read":         func(t *rapid.T) { m.read(t, rapid.SampledFrom(mailOwners()).Draw(t, "reader")) },
			"reopen": func(t *rapid.T) {
				if err := m.j.Close(); err != nil {
					t.Fatal(err)
				}
				m.open(t)
			},
		})
		for _, owner := range mailOwners() {
			m.read(t, owner)
		}
	})
}

func mailOwners() []task.ID { return []task.ID{"a00000001", "s00000000"} }

// mailing is a journal and what its readers have.
type mailing struct {
	path string
	j    *Journal
	ends int
	upto map[task.ID]task.Seq
	have map[task.ID][]task.Seq
}

func (m *mailing) open(t *rapid.T) {
	var err error
	if m.j, err = Open(m.path, Options{}); err != nil {
		t.Fatal(err)
	}
	m.upto, m.have = map[task.ID]task.Seq{}, map[task.ID][]task.Seq{}
}

// wakes checks that who waits for mail is woken when it is durable, and by nothing else.
func (m *mailing) wakes(t *rapid.T, want bool, do func()) {
	mailed := m.j.Mailed()
	do()
	select {
	case <-mailed:
		if !want {
			t.Fatal("woken by no mail")
		}
	default:
		if want {
			t.Fatal("not woken by mail")
		}
	}
}

func (m *mailing) post(t *rapid.T) {
	x := letter(rapid.SampledFrom(mailOwners()).Draw(t, "owner"), "text")
	if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
		x.Kind, x.Text = task.Prompt, strings.Repeat("x", recentMailBytes/2+1)
	}
	m.wakes(t, true, func() {
		if _, err := m.j.Post(context.Background(), x); err != nil {
			t.Fatal(err)
		}
	})
}

// many writes more notifications than are kept in memory.
func (m *mailing) many(t *rapid.T) {
	owner := rapid.SampledFrom(mailOwners()).Draw(t, "owner")
	entries := make([]lifecycle.Entry, recentMail+10)
	for i := range entries {
		entries[i] = m.entry(owner, false)
	}
	if _, errs := m.j.AppendAll(context.Background(), entries); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Fatal(errs)
	}
}

func (m *mailing) entry(owner task.ID, acked bool) lifecycle.Entry {
	m.ends++
	r := record(1)
	r.Run = task.RunID(fmt.Sprintf("run_%d_%d", m.ends, time.Now().UnixNano()))
	return lifecycle.Entry{Verb: task.Complete, Task: r, Notification: &lifecycle.Notification{Run: r.Run, Task: r.ID, Owner: owner, Acked: acked}}
}

func (m *mailing) notification(t *rapid.T) {
	owner := rapid.SampledFrom(append(mailOwners(), "")).Draw(t, "owner")
	e := m.entry(owner, owner == "" || rapid.Bool().Draw(t, "acked"))
	m.wakes(t, !e.Notification.Acked, func() {
		if _, err := m.j.Append(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	})
}

func (m *mailing) ack(t *rapid.T) {
	owner := rapid.SampledFrom(mailOwners()).Draw(t, "owner")
	m.read(t, owner) // as a mailbox does
	if len(m.have[owner]) == 0 {
		t.Skip()
	}
	n := rapid.IntRange(1, len(m.have[owner])).Draw(t, "how many")
	seqs := slices.Clone(m.have[owner][:n])
	m.have[owner] = m.have[owner][n:]
	m.wakes(t, false, func() {
		if err := m.j.Acknowledge(context.Background(), seqs...); err != nil {
			t.Fatal(err)
		}
	})
}

// read reads on for an owner, and then has what the file has, as somebody does who begins.
func (m *mailing) read(t *rapid.T, owner task.ID) {
	ctx := context.Background()
	more, upto := m.mail(t, owner, m.upto[owner])
	m.upto[owner] = upto
	have := append(m.have[owner], more...)
	slices.Sort(have)
	m.have[owner] = slices.Compact(have)
	var want []task.Seq
	notifications, err := m.j.Unacknowledged(ctx, owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range notifications {
		want = append(want, n.Seq)
	}
	unread, err := m.j.Unread(ctx, owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range unread {
		want = append(want, x.Seq)
	}
	slices.Sort(want)
	if !slices.Equal(m.have[owner], want) {
		t.Fatalf("%s has %d of mail, and the file %d", owner, len(m.have[owner]), len(want))
	}
	whole, _ := m.mail(t, owner, 0)
	if slices.Sort(whole); !slices.Equal(whole, want) {
		t.Fatalf("%s begins with %d of mail, and the file has %d", owner, len(whole), len(want))
	}
}

func (m *mailing) mail(t *rapid.T, owner task.ID, after task.Seq) (seqs []task.Seq, upto task.Seq) {
	notifications, messages, upto, err := m.j.Mail(context.Background(), owner, after)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range notifications {
		if n.Owner != owner || n.Acked || n.Run == "" {
			t.Fatalf("%s is given %+v", owner, n)
		}
		seqs = append(seqs, n.Seq)
	}
	for _, x := range messages {
		if x.To != owner || x.Text == "" || x.Hops != 3 {
			t.Fatalf("%s is given message %d to %s", owner, x.Seq, x.To)
		}
		seqs = append(seqs, x.Seq)
	}
	return seqs, upto
}
