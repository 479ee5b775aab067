package journal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/drover-dev/drover/task"
)

// A summary has what its writer needs of the ended tasks, in place of their newest events:
// reading ten thousand of those takes as long as forty starts of a host. It has nothing that
// the events do not have; without it only the opening is slower. Older builds ignore its table,
// and this build continues after events that they added.
//
// It is written in parts, between events, so that it is never complete in memory and no event
// waits for it. The head is written last and replaces the previous summary. If the host dies
// before that, the parts are ignored.

const makeSummary = `CREATE TABLE IF NOT EXISTS summaries (seq INTEGER NOT NULL, part INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (seq, part))`

const (
	putPart    = `INSERT OR REPLACE INTO summaries (seq, part, data) VALUES (?, ?, ?)` // the head is part 0 and has a checksum of all others
	dropOthers = `DELETE FROM summaries WHERE seq <> ? OR part > ?`
	getHead    = `SELECT seq, data FROM summaries WHERE part = 0`
	getParts   = `SELECT data FROM summaries WHERE seq = ? AND part > 0 ORDER BY part`
	hasSummary = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'summaries'`
)

// summaryPart is a part of a summary, or its head.
type summaryPart struct {
	upTo   task.Seq
	part   int // 0: the head
	data   []byte
	others int // number of parts, in the head
}

// Summarize replaces the summary by parts, in any format, which cover all events up to a
// number. Each part is written before the next is requested.
func (j *Journal) Summarize(ctx context.Context, upTo task.Seq, parts iter.Seq[[]byte]) error {
	put := func(p summaryPart) error {
		r := &request{summary: &p, turn: make(chan bool, 1)}
		err := j.ask(ctx, r)
		if err = cmp.Or(err, r.err); err != nil {
			return fmt.Errorf("summarize events up to %d: %w", upTo, err)
		}
		return nil
	}
	n, sums := 0, ""
	for data := range parts {
		n++
		sums += sum(data)
		if err := put(summaryPart{upTo: upTo, part: n, data: data}); err != nil {
			return err
		}
	}
	return put(summaryPart{upTo: upTo, data: []byte(sum([]byte(sums))), others: n})
}

func (w *writer) summarize(p *summaryPart) error {
	if err := w.exec(makeSummary); err != nil {
		return err
	}
	if p.part == 0 {
		if err := w.exec(dropOthers, int64(p.upTo), p.others); err != nil {
			return err
		}
	}
	return w.exec(putPart, int64(p.upTo), p.part, p.data)
}

// Summary returns the parts of the last summary and the number of the event up to which they
// are valid; 0 if the log has no valid summary.
func (j *Journal) Summary(ctx context.Context) (upTo task.Seq, parts [][]byte, err error) {
	db, err := j.reader()
	if err != nil {
		return 0, nil, fmt.Errorf("read summary: %w", err)
	}
	var there int
	if err := db.QueryRowContext(ctx, hasSummary).Scan(&there); err != nil || there == 0 {
		return 0, nil, err
	}
	var head []byte
	err = db.QueryRowContext(ctx, getHead).Scan(&upTo, &head)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil, nil
	}
	sums := ""
	if err == nil {
		parts, sums, err = summaryParts(ctx, db, upTo)
	}
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("read summary: %w", err)
	case string(head) != sum([]byte(sums)) || upTo > j.Last():
		return 0, nil, nil
	}
	return upTo, parts, nil
}

// summaryParts reads the parts and their combined checksum.
func summaryParts(ctx context.Context, db *sql.DB, upTo task.Seq) (parts [][]byte, sums string, err error) {
	rows, err := db.QueryContext(ctx, getParts, int64(upTo))
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return nil, "", err
		}
		parts, sums = append(parts, data), sums+sum(data)
	}
	return parts, sums, rows.Err()
}
