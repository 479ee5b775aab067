package journal

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// No byte of a record can change unseen.
func TestDamagedRecord(t *testing.T) {
	whole, err := encode(new(record(1)))
	if err != nil {
		t.Fatal(err)
	}
	var want, got task.Record
	if err := unseal(whole, &want); err != nil || want.ID != record(1).ID {
		t.Fatalf("%+v, %v", want, err)
	}
	for i := range whole {
		data := append([]byte(nil), whole...)
		data[i] ^= 0x01
		err := unseal(data, &got)
		inName := i >= len(whole)-len(sumField)-10 && i < len(whole)-10 // then the sum is a field that nobody knows
		if err == nil && !inName || inName && err != nil && errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d of %d: %v", i, len(whole), err)
		}
	}
	old := append(whole[:len(whole)-len(sumField)-10:len(whole)-len(sumField)-10], '}')
	if err := unseal(old, &got); err != nil {
		t.Errorf("a record of an older build: %v", err)
	}
}

// A record without a sum may be anything: one that is nested without end is refused as
// any other that cannot be read, and does not end the process.
func TestDeepRecord(t *testing.T) {
	const deep = 8 << 20
	var got task.Record
	if err := unseal([]byte(`{"new":`+strings.Repeat("[", deep)+strings.Repeat("]", deep)+`}`), &got); err == nil {
		t.Error("it was taken")
	}
}

// Who holds a record does not hold on to the row that it was read from.
func TestRecordAlone(t *testing.T) {
	want := record(1)
	data, err := encode(&want)
	if err != nil {
		t.Fatal(err)
	}
	got := task.Record{Name: "of another", Cause: &task.Cause{Detail: "of another"}}
	if err := unseal(data, &got); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nis read as\n%+v", want, got)
	}
}
