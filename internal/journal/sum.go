package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/drover-dev/drover/task"
)

// ErrDamaged is returned for an event that is not as it was written. SQLite
// looks after its pages, not after what stands in them.
var ErrDamaged = errors.New("it is not as it was written")

// Damaged reports whether an error of this package tells of a log that is not as it
// was written, as distinct from one that cannot be got at.
func Damaged(err error) bool {
	var inner *sqlite.Error
	if errors.As(err, &inner) {
		code := inner.Code() & 0xff // the rest says more of the same
		return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
	}
	return errors.Is(err, ErrDamaged)
}

// sumField begins the last field of a record in the file: the CRC-32C of all before
// it. Records of older builds have none, and older builds pass over it.
const sumField = `,"crc32c":"`

func sum(b []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// seal adds the sum to a JSON object.
func seal(record []byte) []byte {
	body := bytes.TrimSuffix(record, []byte("}"))
	return append(body, (sumField + sum(body) + `"}`)...)
}

// unseal reads a record, and refuses one that is damaged.
func unseal(record []byte, to *task.Record) error {
	if i := bytes.LastIndex(record, []byte(sumField)); i >= 0 && !bytes.Equal(record[i+len(sumField):], []byte(sum(record[:i])+`"}`)) {
		return ErrDamaged
	}
	return json.Unmarshal(record, to)
}
