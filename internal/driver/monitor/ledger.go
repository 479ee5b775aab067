package monitor

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/task"
)

// Bounds of notifications about events.
const (
	window            = 200 * time.Millisecond // after an event, in which others join it
	notificationLines = 50
	notificationBytes = 4 << 10
	eventBytes        = 1 << 10 // of one event in a notification

	notificationEvery = time.Second // in the long run
	notificationBurst = 5           // that may go before

	firstRetry = time.Second // after a notification could not be sent; doubled each time
	lastRetry  = time.Minute

	reportEvery = time.Second // for the counts
)

// notification is what will be told at once. It is bounded, however many events join it.
type notification struct {
	lines []string
	bytes int
	more  int64     // events that did not fit
	since time.Time // of its first event; zero without events
}

func (n *notification) empty() bool { return n.since.IsZero() }

func (n *notification) add(line string, now time.Time) {
	if n.empty() {
		n.since = now
	}
	if len(n.lines) == notificationLines || n.more > 0 || len(n.lines) > 0 && n.bytes+len(line) > notificationBytes {
		n.more++
		return
	}
	n.lines, n.bytes = append(n.lines, line), n.bytes+len(line)+1
}

// join appends a later notification to this one.
func (n *notification) join(later notification) {
	for _, line := range later.lines {
		n.add(line, later.since)
	}
	n.more += later.more
}

func (n *notification) text() string {
	text := strings.Join(n.lines, "\n")
	if n.more > 0 {
		text += fmt.Sprintf("\n… and %d more, which came too fast to be shown", n.more)
	}
	return text
}

// ledger counts the events of a monitor, and decides which notifications are sent and
// when. It keeps no time of its own.
type ledger struct {
	count task.MonitorCount
	next  notification

	paid  time.Time // up to when notifications were sent, one in notificationEvery
	retry time.Time // not before: the last one could not be sent
	wait  time.Duration

	dirty    bool // the counts have changed since they were reported
	reported time.Time
}

// add counts a line. An event, which text is then, is put into the next notification if
// somebody is to be told.
func (l *ledger) add(text string, event, told bool, now time.Time) {
	l.count.Lines++
	l.dirty = true
	if !event {
		return
	}
	l.count.Events++
	if told {
		l.next.add(shorten(text), now)
	}
}

func shorten(text string) string {
	if len(text) <= eventBytes {
		return text
	}
	n := eventBytes - len("…")
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// due is when there is something to do next; zero: nothing.
func (l *ledger) due() time.Time {
	var at time.Time
	if l.dirty {
		at = l.reported.Add(reportEvery)
	}
	if n := l.notificationDue(); !l.next.empty() && (at.IsZero() || n.Before(at)) {
		at = n
	}
	return at
}

func (l *ledger) notificationDue() time.Time {
	return latest(l.next.since.Add(window), l.paid.Add(-(notificationBurst-1)*notificationEvery), l.retry)
}

func latest(first time.Time, more ...time.Time) time.Time {
	for _, t := range more {
		if t.After(first) {
			first = t
		}
	}
	return first
}

// report takes the counts, if it is time to report them.
func (l *ledger) report(now time.Time) (task.MonitorCount, bool) {
	if !l.dirty || now.Before(l.reported.Add(reportEvery)) {
		return task.MonitorCount{}, false
	}
	l.dirty, l.reported = false, now
	return l.count, true
}

// take takes the next notification, if it is time to send it.
func (l *ledger) take(now time.Time) (notification, bool) {
	if l.next.empty() || now.Before(l.notificationDue()) {
		return notification{}, false
	}
	n := l.next
	l.next = notification{}
	return n, true
}

// sent counts a notification that was.
func (l *ledger) sent(n notification, now time.Time) {
	l.count.Notified += int64(len(n.lines))
	l.count.Dropped += n.more
	l.dirty = true
	l.paid = latest(now, l.paid).Add(notificationEvery)
	l.wait, l.retry = 0, time.Time{}
}

// unsent takes a notification back that could not be sent. It is tried again later,
// together with newer events.
func (l *ledger) unsent(n notification, now time.Time) {
	n.join(l.next)
	l.next = n
	l.wait = min(max(2*l.wait, firstRetry), lastRetry)
	l.retry = now.Add(l.wait)
}

// lose counts events that were never sent.
func (l *ledger) lose() {
	l.count.Dropped += int64(len(l.next.lines)) + l.next.more
	l.next = notification{}
}
