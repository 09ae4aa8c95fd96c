package bench

import (
	"os"
	"testing"
)

// A turn leaves at most half as much again on the disk as it says, however long the session is: nothing is stored twice,
// and no step stores what was before it.
func TestStorage(t *testing.T) {
	t.Parallel()
	turns := 0
	stored, said := storage(t, func() bool { turns++; return turns <= 300 })
	t.Logf("a turn says %.0f bytes and leaves %.0f", said, stored)
	if stored > 1.5*said {
		t.Errorf("a turn says %.0f bytes and leaves %.0f: more than half as much again", said, stored)
	}
}

// BenchmarkStorage measures what a turn leaves on the disk, beside what it says.
func BenchmarkStorage(b *testing.B) {
	stored, said := storage(b, b.Loop)
	b.ReportMetric(stored, "stored-bytes/turn")
	b.ReportMetric(said, "said-bytes/turn")
	b.ReportMetric(stored/said, "stored/said")
	b.ReportMetric(0, "ns/op")
}

// storage runs turns of one session: the bytes that the database grows by in a turn, and the bytes of a turn's events.
func storage(t testing.TB, more func() bool) (stored, said float64) {
	dir := t.TempDir()
	s, stop := openAt(t, dir)
	c := s.chat()
	stop()
	empty := size(t, dir)
	s, stop = openAt(t, dir)
	c = s.follow(c.id)
	turns := 0
	for more() {
		c.turn("turn")
		turns++
	}
	said = float64(c.said())
	stop()
	return float64(size(t, dir)-empty) / float64(turns), said / float64(turns)
}

func size(t testing.TB, dir string) int64 {
	info, err := os.Stat(dir + "/perdure.db")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
