package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/drover-dev/drover/internal/records"
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

func sum(b []byte) string { return string(appendSum(nil, b)) }

// appendSum appends the sum of b, in eight digits.
func appendSum(to, b []byte) []byte {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return hex.AppendEncode(to, sum[:])
}

// seal adds the sum to a JSON object, whose bytes it takes over.
func seal(record []byte) []byte {
	body := bytes.TrimSuffix(record, []byte("}"))
	sealed := append(body, sumField...)
	return append(appendSum(sealed, sealed[:len(body)]), `"}`...)
}

// whole reports whether a record is as it was written, as far as can be told.
func whole(record []byte) bool {
	i := bytes.LastIndex(record, []byte(sumField))
	if i < 0 {
		return true
	}
	var end [10]byte
	return bytes.Equal(record[i+len(sumField):], append(appendSum(end[:0], record[:i]), `"}`...))
}

// unseal reads a record, and refuses one that is damaged.
func unseal(data []byte, to *task.Record) error {
	if !whole(data) {
		return ErrDamaged
	}
	return records.Read(data, to)
}
