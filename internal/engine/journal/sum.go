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

// ErrDamaged is returned for an event whose record does not match its checksum. SQLite checks
// its pages, not their content.
var ErrDamaged = errors.New("it is not as it was written")

// Damaged reports whether an error of this package means that the log is damaged, as opposed to
// inaccessible.
func Damaged(err error) bool {
	var inner *sqlite.Error
	if errors.As(err, &inner) {
		code := inner.Code() & 0xff // the rest of the text repeats it
		return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
	}
	return errors.Is(err, ErrDamaged)
}

// sumField begins the last field of a stored record: the CRC-32C of everything before it.
// Records of older builds have none, and older builds ignore it.
const sumField = `,"crc32c":"`

func sum(b []byte) string { return string(appendSum(nil, b)) }

// appendSum appends the checksum of b in eight digits.
func appendSum(to, b []byte) []byte {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return hex.AppendEncode(to, sum[:])
}

// seal appends the checksum to a JSON object. It takes ownership of the bytes.
func seal(record []byte) []byte {
	body := bytes.TrimSuffix(record, []byte("}"))
	sealed := append(body, sumField...)
	return append(appendSum(sealed, sealed[:len(body)]), `"}`...)
}

// unseal decodes a record and rejects a damaged one. The fast decoder gets only records with a
// valid checksum, since it overflows the stack on JSON with very deep nesting.
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
