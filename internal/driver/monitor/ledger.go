package monitor

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/task"
)

// How events are told.
const (
	window      = 200 * time.Millisecond // after an event, in which others join it
	noticeLines = 50
	noticeBytes = 4 << 10
	eventBytes  = 1 << 10 // of one event that are told

	noticeEvery = time.Second // in the long run
	noticeBurst = 5           // that may go before

	firstRetry = time.Second // after a notice could not be sent; doubled each time
	lastRetry  = time.Minute

	reportEvery = time.Second // for the counts
)

// notice is what will be told at once. It is bounded, however many events join it.
type notice struct {
	lines []string
	bytes int
	more  int64     // events that did not fit
	since time.Time // of its first event; zero: there is none
}

func (n *notice) empty() bool { return n.since.IsZero() }

func (n *notice) add(line string, now time.Time) {
	if n.empty() {
		n.since = now
	}
	if len(n.lines) == noticeLines || n.more > 0 || len(n.lines) > 0 && n.bytes+len(line) > noticeBytes {
		n.more++
		return
	}
	n.lines, n.bytes = append(n.lines, line), n.bytes+len(line)+1
}

// join puts what came after this notice behind it.
func (n *notice) join(later notice) {
	for _, line := range later.lines {
		n.add(line, later.since)
	}
	n.more += later.more
}

func (n *notice) text() string {
	text := strings.Join(n.lines, "\n")
	if n.more > 0 {
		text += fmt.Sprintf("\n… and %d more, which came too fast to be shown", n.more)
	}
	return text
}

// ledger counts what a monitor sees, and says what is to be told and when. It
// keeps no time of its own.
type ledger struct {
	count task.MonitorCount
	next  notice

	paid  time.Time // up to when notices were sent, one in noticeEvery
	retry time.Time // not before: the last one could not be sent
	wait  time.Duration

	dirty    bool // the counts have changed since they were reported
	reported time.Time
}

// add counts a line. An event, which text is then, is put into the next notice if
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
	if n := l.noticeDue(); !l.next.empty() && (at.IsZero() || n.Before(at)) {
		at = n
	}
	return at
}

func (l *ledger) noticeDue() time.Time {
	return latest(l.next.since.Add(window), l.paid.Add(-(noticeBurst-1)*noticeEvery), l.retry)
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

// take takes the next notice, if it is time to send it.
func (l *ledger) take(now time.Time) (notice, bool) {
	if l.next.empty() || now.Before(l.noticeDue()) {
		return notice{}, false
	}
	n := l.next
	l.next = notice{}
	return n, true
}

// sent counts a notice that was.
func (l *ledger) sent(n notice, now time.Time) {
	l.count.Notified += int64(len(n.lines))
	l.count.Dropped += n.more
	l.dirty = true
	l.paid = latest(now, l.paid).Add(noticeEvery)
	l.wait, l.retry = 0, time.Time{}
}

// unsent takes a notice back that could not be sent. It is tried again later,
// with what has come meanwhile.
func (l *ledger) unsent(n notice, now time.Time) {
	n.join(l.next)
	l.next = n
	l.wait = min(max(2*l.wait, firstRetry), lastRetry)
	l.retry = now.Add(l.wait)
}

// lose counts what was never told.
func (l *ledger) lose() {
	l.count.Dropped += int64(len(l.next.lines)) + l.next.more
	l.next = notice{}
}
