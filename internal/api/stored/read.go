package stored

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Limits of reading output.
const (
	defaultRead = 64 << 10
	maxRead     = 8 << 20
	resultChars = 160_000 // of the end of a command's output, as its answer
)

// DiskBytes returns the size of the files of a session, and of the outputs among them. Files
// that cannot be read, or disappear meanwhile, do not count.
func DiskBytes(place home.Session) (all, outputs int64) { return sizes(place, place.Dir()) }

// OutputBytes returns the size of the outputs of a session, including those of its hooks.
func OutputBytes(place home.Session) int64 {
	_, tasks := sizes(place, place.Tasks())
	_, hooks := sizes(place, place.HookOutputs())
	return tasks + hooks
}

func sizes(place home.Session, path string) (all, outputs int64) {
	dir, err := place.Below().Folder(path)
	if err != nil {
		return 0, 0
	}
	defer dir.Close()
	dir.Files(func(info fs.FileInfo) {
		all += info.Size()
		if filepath.Ext(info.Name()) == ".output" {
			outputs += info.Size()
		}
	})
	return all, outputs
}

// Output reads the output file of a task that is in the given state. It does not wait.
func Output(r task.Record, req control.OutputRequest) (control.Chunk, error) {
	limit := req.Max
	if limit <= 0 {
		limit = defaultRead
	}
	limit = min(limit, maxRead)
	c := control.Chunk{Offset: req.Offset, Next: req.Offset, Data: []byte{}}
	if req.Offset < 0 {
		return c, control.Refuse(control.Invalid, "the offset is negative", "")
	}
	var data []byte
	var err error
	if req.Tail > 0 {
		data, c.Offset, err = spool.Tail(r.OutputFile, req.Tail, limit)
		c.Next = c.Offset + int64(len(data))
	} else {
		data, c.Next, err = spool.ReadAt(r.OutputFile, req.Offset, limit, r.Status.Terminal())
		c.Offset = c.Next - int64(len(data))
	}
	if errors.Is(err, fs.ErrNotExist) && (r.StartTime == nil || r.Status.Terminal()) {
		c.Next = req.Offset
		c.Ended = r.Status.Terminal()
		return c, nil // it has never begun, or failed to start
	}
	if errors.Is(err, spool.ErrTruncated) {
		return c, control.Refuse(control.Invalid,
			fmt.Sprintf("offset %d is beyond the end of the output of %s", req.Offset, r.ID), "read from 0 on")
	}
	if err != nil {
		return c, err // the error names the file
	}
	if len(data) > 0 {
		c.Data = data
	}
	c.Size = max(r.OutputBytes, c.Next)
	c.Ended = r.Status.Terminal() && c.Next >= r.OutputBytes
	return c, nil
}

// resultPart is the default size of a part of an answer.
const resultPart = 1 << 20

// Answer returns a part of the answer of a task: for a command the end of its output, for
// others the text in the log.
func Answer(
	ctx context.Context, log *journal.Journal, r task.Record, req control.ResultRequest,
) (a control.Answer, err error) {
	switch {
	case !r.Status.Terminal():
		return a, control.Refuse(control.Conflict, fmt.Sprintf("task %s has not ended: it is %s", r.ID, r.Status),
			fmt.Sprintf("see `drover wait %s` or `drover logs %s`", r.ID, r.ID))
	case req.Offset < 0 || req.Max < 0:
		return a, control.Refuse(control.Invalid, "the offset or the length of a part is negative", "")
	}
	a.Task = r
	var all []byte
	read := func(at int64) ([]byte, error) { return log.AnswerAt(ctx, r.Run, at) }
	if r.Traits().Work == task.ByCommand {
		text, _, err := spool.Excerpt(r.OutputFile, resultChars)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return a, fmt.Errorf("read output of %s: %w", r.ID, err)
		}
		all = []byte(text)
		a.Size = int64(len(all))
		read = func(at int64) ([]byte, error) { return all[at:], nil }
	} else if a.Size, err = log.AnswerSize(ctx, r.Run); err != nil {
		return a, err
	}
	if req.Offset > a.Size {
		return a, control.Refuse(control.Invalid,
			fmt.Sprintf("offset %d is beyond the end of the answer of %s, which has %d bytes", req.Offset, r.ID, a.Size),
			"")
	}
	most := min(cmp.Or(req.Max, resultPart), maxRead)
	var text []byte
	for at := req.Offset; at < a.Size && len(text) < most; at = req.Offset + int64(len(text)) {
		part, err := read(at)
		if err != nil {
			return a, err
		}
		text = append(text, part[:min(len(part), most-len(text))]...)
	}
	if req.Offset+int64(len(text)) < a.Size {
		text = wholeCharacters(text)
	}
	a.Text, a.Offset, a.Next = string(text), req.Offset, req.Offset+int64(len(text))
	return a, nil
}

// wholeCharacters drops an incomplete character at the end of b, unless there is nothing else.
func wholeCharacters(b []byte) []byte {
	for n := len(b) - 1; n > 0 && n >= len(b)-utf8.UTFMax; n-- {
		if !utf8.RuneStart(b[n]) {
			continue
		}
		if !utf8.FullRune(b[n:]) {
			return b[:n]
		}
		break
	}
	return b
}
