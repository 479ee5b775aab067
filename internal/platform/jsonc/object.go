package jsonc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrNotObject is returned by [Members] for text that does not begin an object.
var ErrNotObject = errors.New("it is not a JSON object")

// Object is a JSON object in the order in which it is written, repeated keys included.
type Object []Member

// Member is a key of an [Object] with its value.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Members reads an object. It returns [ErrNotObject], or an error that names the mistake in the JSON.
func Members(data []byte) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, ErrNotObject
	}
	var out Object
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := Member{}
		m.Key, _ = t.(string) // a key is a string, or Token would have failed
		if err := d.Decode(&m.Value); err != nil {
			return nil, fmt.Errorf("at field %.60q: %w", m.Key, err)
		}
		out = append(out, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("it is cut off")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	return out, nil
}

// Find is the index of the first member with a key, or -1.
func (o Object) Find(key string) int {
	return slices.IndexFunc(o, func(m Member) bool { return m.Key == key })
}

// Get is the value of the first member with a key, or nil.
func (o Object) Get(key string) json.RawMessage {
	if i := o.Find(key); i >= 0 {
		return o[i].Value
	}
	return nil
}

// Text is the object as JSON, with the values as they are: a [json.Marshaler] would have
// them written anew.
func (o Object) Text() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := Encode(m.Key)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), m.Value...)
	}
	return append(out, '}'), nil
}

// Encode is [json.Marshal] without HTML escaping: people and scripts read the result.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
