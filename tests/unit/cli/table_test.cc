#include "client/cli/table.h"

#include <gtest/gtest.h>

namespace backendd::cli {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({"FLAG", "VALUE"});
  table.Add({"cudnn.benchmark", "true"});
  table.Add({"x", "2"});
  EXPECT_EQ(table.Text(),
            "FLAG             VALUE\n"
            "cudnn.benchmark  true\n"
            "x                2\n");
}

TEST(Table, WideAndCombiningCharactersAreCountedAsTerminalsDrawThem) {
  EXPECT_EQ(DisplayWidth("日本"), 4);
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1);  // e and a combining acute accent
  EXPECT_EQ(DisplayWidth("größe"), 5);
  Table table({"NAME", "PID"});
  table.Add({"日本", "1"});
  table.Add({"abcd", "2"});
  EXPECT_EQ(table.Text(), "NAME  PID\n日本  1\nabcd  2\n");
}

TEST(Table, TextOfStrangersCannotDriveTheTerminal) {
  EXPECT_EQ(Escaped("a\x1b[2Jb\nc\td"), "a\\x1b[2Jb\\nc\\td");
  EXPECT_EQ(Escaped("\x7f"), "\\x7f");
  EXPECT_EQ(Escaped("a\xc2\x9b"
                    "b"),
            "a\\u009bb");  // the one-byte CSI
  EXPECT_EQ(Escaped("a\xe2\x80\xae"
                    "b"),
            "a\\u202eb");                                 // right-to-left override
  EXPECT_EQ(Escaped("\xff\xc0\x80"), "\\xff\\xc0\\x80");  // broken and overlong UTF-8
  EXPECT_EQ(Escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Escaped("größe 日本 🙂"), "größe 日本 🙂");
}

TEST(Table, LinesAreCutOnlyWhereAWidthIsGiven) {
  Table table({"NAME"});
  table.Add({"abcdefghij"});
  EXPECT_EQ(table.Text(5), "NAME\nabcd…\n");
  EXPECT_EQ(table.Text(), "NAME\nabcdefghij\n");
  EXPECT_EQ(Cut("日本語", 4), "日…");  // never half a wide character
  EXPECT_EQ(Cut("abc", 3), "abc");
}

TEST(Table, MissingCellsAreEmptyAndLeaveNoTrailingSpaces) {
  Table table({"A", "B"});
  table.Add({"only"});
  EXPECT_EQ(table.Text(), "A     B\nonly\n");
}

TEST(Table, OnlyTheHeaderIsBold) {
  Table table({"A"});
  table.Add({"x"});
  EXPECT_EQ(table.Text(0, true), "\x1b[1mA\x1b[0m\nx\n");
}

}  // namespace
}  // namespace backendd::cli
