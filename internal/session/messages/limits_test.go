package messages

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// The chain of messages ends with what is not talk, and grows by what answers.
func TestChains(t *testing.T) {
	h := &chains{}
	for i := 1; i <= 3; i++ {
		n, err := h.next("a1", 3)
		if err != nil || n != i || h.answer("a1") != map[int]int{1: 0, 2: 2, 3: 3}[i] {
			t.Fatalf("message %d has %d, %v; answer %d", i, n, err, h.answer("a1"))
		}
		h.hear("a1", n)
	}
	if _, err := h.next("a1", 3); err == nil {
		t.Error("one message too many")
	}
	mail := []mailbox.Mail{{Seq: 1, Message: &task.Message{Hops: 3}}, {Seq: 2, Message: &task.Message{Hops: 1}}, {Seq: 3, Message: &task.Message{}}, {Seq: 4, Notification: lifecycle.Notification{Task: "a2"}}}
	h.hear("a2", 2)
	for _, c := range []struct {
		read []task.Seq
		want int
	}{{[]task.Seq{1, 2}, 4}, {[]task.Seq{2}, 2}, {[]task.Seq{1, 3}, 1}, {[]task.Seq{4}, 4}} {
		h.read("a1", mail, c.read)
		if n, _ := h.next("a1", 10); n != c.want {
			t.Errorf("after mail %v a message has %d", c.read, n)
		}
	}
	h.worked("a1")
	if n, err := h.next("a1", 3); n != 1 || err != nil {
		t.Errorf("after some work: %d, %v", n, err)
	}
}

// Two agents cannot write to each other for ever, and others are not held up by
// them; nor can all of them together.
func TestRates(t *testing.T) {
	var tr rates
	now := time.Now()
	for i := range pairMessages {
		if err := tr.pass("a1", "a2", now.Add(time.Duration(i))); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	var refused *toolkit.Refusal
	if err := tr.pass("a1", "a2", now.Add(pairWindow-1)); !errors.As(err, &refused) || !strings.Contains(refused.Text, "30 messages") {
		t.Errorf("one too many: %v", err)
	}
	if err := tr.pass("a2", "a1", now); err != nil {
		t.Errorf("the other way: %v", err)
	}
	if err := tr.pass("a1", "a2", now.Add(pairWindow)); err != nil {
		t.Errorf("after a while: %v", err)
	}
	for i := tr.total; i < sessionMessages; i++ {
		if err := tr.pass("a1", "a3", now.Add(time.Duration(i)*pairWindow)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.pass("a4", "a5", now); !errors.As(err, &refused) {
		t.Errorf("beyond the bound of the session: %v", err)
	}
}
