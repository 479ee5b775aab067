package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/task"
)

// A long answer is stored in parts of equal length, so that a reader need not hold all of it in
// memory. The first part has the ID of the run as its key, the others the ID with their number.
// A short answer is one part, as in older builds.

const (
	answerPart = 1 << 20 // bytes

	getAnswer   = `SELECT CAST(text AS BLOB) FROM answers WHERE run_id = ?`
	countAnswer = `SELECT count(*) FROM answers WHERE run_id = ? OR run_id > ? AND run_id < ?`
	sizeAnswer  = `SELECT length(CAST(text AS BLOB)) FROM answers WHERE run_id = ?`

	partMark, behindPartMark = "/", "0" // the character after the mark
)

func partKey(run task.RunID, n int64) string {
	if n == 0 {
		return string(run)
	}
	return string(run) + partMark + strconv.FormatInt(n, 10)
}

func (w *writer) answer(run task.RunID, text string) error {
	for n := int64(0); len(text) > 0; n++ {
		part := text[:min(answerPart, len(text))]
		text = text[len(part):]
		if err := w.exec(insertAnswer, partKey(run, n), part); err != nil {
			return err
		}
	}
	return nil
}

// Answer returns the final answer of a run, or "" if it has none.
func (j *Journal) Answer(ctx context.Context, run task.RunID) (string, error) {
	size, err := j.AnswerSize(ctx, run)
	if err != nil || size == 0 {
		return "", err
	}
	var text strings.Builder
	text.Grow(int(size))
	for int64(text.Len()) < size {
		part, err := j.AnswerAt(ctx, run, int64(text.Len()))
		if err != nil {
			return "", err
		}
		text.Write(part)
	}
	return text.String(), nil
}

// AnswerSize returns the length of the final answer of a run in bytes; 0 if it has none.
func (j *Journal) AnswerSize(ctx context.Context, run task.RunID) (int64, error) {
	db, err := j.reader()
	if err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	var parts, last int64
	err = db.QueryRowContext(ctx, countAnswer, string(run), string(run)+partMark, string(run)+behindPartMark).Scan(&parts)
	if err == nil && parts > 0 {
		err = db.QueryRowContext(ctx, sizeAnswer, partKey(run, parts-1)).Scan(&last)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("read answer of %s: %w: one of its parts is missing", run, ErrDamaged)
	case err != nil:
		return 0, fmt.Errorf("read answer of %s: %w", run, err)
	}
	return max(0, parts-1)*answerPart + last, nil
}

// AnswerAt returns the final answer of a run from an offset, which is less than its size, to
// the end of the part there: at most 1 MiB for an answer of this build.
func (j *Journal) AnswerAt(ctx context.Context, run task.RunID, offset int64) ([]byte, error) {
	db, err := j.reader()
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	n := offset / answerPart
	var part []byte
	err = db.QueryRowContext(ctx, getAnswer, partKey(run, n)).Scan(&part)
	if errors.Is(err, sql.ErrNoRows) && n > 0 { // older builds wrote one part of any length
		n = 0
		err = db.QueryRowContext(ctx, getAnswer, partKey(run, 0)).Scan(&part)
	}
	at := offset - n*answerPart
	switch {
	case err == nil && at < int64(len(part)):
		return part[at:], nil
	case err == nil || errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("read answer of %s: %w: byte %d is missing", run, ErrDamaged, offset)
	}
	return nil, fmt.Errorf("read answer of %s: %w", run, err)
}

// AnswerExcerpt is [Journal.Answer] for a reader that shows little: of more than 2 MiB it
// returns the first and the last part, and the number of bytes in between.
func (j *Journal) AnswerExcerpt(ctx context.Context, run task.RunID) (string, error) {
	size, err := j.AnswerSize(ctx, run)
	switch {
	case err != nil:
		return "", err
	case size <= 2*answerPart:
		return j.Answer(ctx, run)
	}
	head, err := j.AnswerAt(ctx, run, 0)
	if err != nil {
		return "", err
	}
	head = head[:min(answerPart, len(head))]
	tail := make([]byte, 0, answerPart)
	for at := size - answerPart; at < size; at = size - answerPart + int64(len(tail)) {
		part, err := j.AnswerAt(ctx, run, at)
		if err != nil {
			return "", err
		}
		tail = append(tail, part...)
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", head, size-2*answerPart, tail), ""), nil
}
