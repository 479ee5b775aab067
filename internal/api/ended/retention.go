package ended

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Session is an ended session, as its files show it.
type Session struct {
	Place home.Session
	Info  control.Info
	End   time.Time
	Bytes int64 // of all its files

	live bool // it may not have ended, so nothing of it is removed
}

// Removed is the result for a session that was to be removed.
type Removed struct {
	Session task.ID
	Owed    int    // notifications that were never delivered
	Kept    string // why it was not removed; empty: it was removed
	Unseen  string // what could not be checked; see [Session.Discard]
}

// Overdue returns the sessions of a folder, or of all with "", that exceed the retention,
// oldest end first. The size limit counts all sessions of the user, including live ones.
func Overdue(root home.Root, folder string, keep options.Retention, now time.Time) ([]Session, error) {
	projects, err := root.Projects()
	if err != nil {
		return nil, err
	}
	var all []Session
	for _, p := range projects {
		places, err := p.Sessions()
		if err != nil {
			return nil, err
		}
		for _, place := range places {
			if past, ok := look(place); ok {
				all = append(all, past)
			}
		}
	}
	over := overdue(all, keep, now)
	if folder != "" {
		mine := root.Project(folder).Folder()
		over = slices.DeleteFunc(over, func(p Session) bool { return p.Place.Project().Folder() != mine })
	}
	return over, nil
}

// overdue selects those that are too old, then as many of the others, oldest end first, as
// needed for the size limit.
func overdue(all []Session, keep options.Retention, now time.Time) []Session {
	var ended []Session
	var sum int64
	for _, p := range all {
		sum += p.Bytes
		if !p.live {
			ended = append(ended, p)
		}
	}
	slices.SortStableFunc(ended, func(a, b Session) int { return a.End.Compare(b.End) })
	n := 0
	for n < len(ended) {
		old := keep.Age > 0 && now.Sub(ended[n].End) > keep.Age
		if !old && !(keep.Bytes > 0 && sum > keep.Bytes) {
			break
		}
		sum -= ended[n].Bytes
		n++
	}
	return ended[:n]
}

// look examines a session. One without a description is being created, or was never completed,
// and is skipped.
func look(place home.Session) (Session, bool) {
	info, err := stored.ReadInfo(place)
	if err != nil {
		return Session{}, false
	}
	p := Session{Place: place, Info: info, Bytes: info.DiskBytes}
	switch wrote, ok := lastWrite(place); {
	case info.EndTime != nil:
		p.End = *info.EndTime
	case ok && !opened(place): // its host died: it ended at the last write
		p.End = wrote
	default:
		p.live = true
	}
	if info.EndTime == nil || info.Tasks.Live > 0 {
		p.Bytes, _ = stored.DiskBytes(place)
	}
	return p, true
}

// lastWrite returns the time of the last write to the log. Writes go to the WAL first, and to
// the log itself much later.
func lastWrite(place home.Session) (at time.Time, ok bool) {
	for _, path := range []string{place.DB(), place.DB() + "-wal"} {
		if info, err := place.Below().Lstat(path); err == nil && info.ModTime().After(at) {
			at, ok = info.ModTime(), true
		}
	}
	return at, ok
}

// opened reports whether a host has the session open now.
func opened(place home.Session) bool {
	unlock, err := place.Lock()
	if err != nil {
		return true
	}
	unlock()
	return false
}

// Remove removes the files of the session, unless it is open, was opened since it was examined,
// or has running tasks. A session with undelivered notifications is removed only if the caller
// says so.
func (p Session) Remove(ctx context.Context, owing bool) (Removed, error) {
	return p.remove(ctx, owing, holds)
}

func (p Session) remove(ctx context.Context, owing bool, holds keeping) (Removed, error) {
	r := Removed{Session: p.Place.ID()}
	unlock, err := p.Place.Lock()
	if errors.Is(err, home.ErrLocked) {
		r.Kept = "it is open"
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer unlock()
	now, err := stored.ReadInfo(p.Place)
	if err != nil && p.Info.Damaged {
		now, err = p.Info, nil // the error of its log describes it
	}
	if err != nil {
		return r, err
	}
	if !now.StartTime.Equal(p.Info.StartTime) {
		r.Kept = "it was open again"
		return r, nil
	}
	if r.Kept, r.Owed, err = holds(ctx, p.Place, now); err != nil || r.Kept != "" {
		return r, err
	}
	if r.Owed > 0 && !owing {
		r.Kept = fmt.Sprintf("%d notifications were never delivered", r.Owed)
		return r, nil
	}
	return r, p.Place.Remove()
}

// holds returns why a session must stay, and the number of its undelivered notifications.
func holds(ctx context.Context, place home.Session, info control.Info) (why string, owed int, err error) {
	if _, err := place.Below().Lstat(place.DB()); errors.Is(err, os.ErrNotExist) {
		return "", 0, stored.Explain(place, stored.Gone(place)) // or it never had a task
	}
	a, err := archive.Open(ctx, place, info)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = cmp.Or(err, a.Close()) }()
	if _, err := a.List(ctx, control.ListRequest{}); err != nil { // whether a task of it is running is unknown
		return "", 0, err
	}
	if a.Kept() {
		return "something of it is still at work", 0, nil
	}
	owed, err = a.Unacknowledged(ctx)
	return "", owed, err
}

// mostRemoved limits how many sessions one call of [Retain] removes.
const mostRemoved = 50

// Retain removes the sessions that exceed the retention, and reports the result to the user. A
// session with undelivered notifications is left to `drover sessions rm --old`, since its owner
// may still continue it.
func Retain(ctx context.Context, root home.Root, keep options.Retention, report func(text string)) {
	over, err := Overdue(root, "", keep, time.Now())
	if err != nil {
		report(fmt.Sprintf("tasks.retention: %v", err))
		return
	}
	removed := 0
	for _, p := range over {
		if ctx.Err() != nil || removed == mostRemoved {
			break
		}
		r, err := p.Remove(ctx, false)
		switch {
		case err != nil && ctx.Err() == nil:
			report(fmt.Sprintf("tasks.retention: %v", err))
		case err == nil && r.Kept == "":
			removed++
		}
	}
	if removed > 0 {
		report(fmt.Sprintf("%d ended sessions were removed, as tasks.retention says", removed))
	}
}
