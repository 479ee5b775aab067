package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"

	fast "github.com/segmentio/encoding/json"
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

// unseal reads a record, and refuses one that is damaged. The fast reader gets what a
// sum vouches for: it takes JSON however deep it is nested, until that ends the process.
func unseal(data []byte, to *task.Record) error {
	*to = task.Record{}
	end := bytes.LastIndex(data, []byte(sumField))
	if end < 0 {
		return json.Unmarshal(data, to)
	}
	var rest [10]byte
	if !bytes.Equal(data[end+len(sumField):], append(appendSum(rest[:0], data[:end]), `"}`...)) {
		return ErrDamaged
	}
	return fast.Unmarshal(data, to)
}
