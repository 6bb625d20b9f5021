"""Files that Confluent's clients take for granted, so that schemas import them without a reference."""

from typing import Final

_META: Final = """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option go_package = "../confluent";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL: Final = """syntax = "proto3";
package confluent.type;
option go_package = "../types";
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
BUILTIN_PROTOS: Final = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/types/decimal.proto": 'syntax = "proto3";\nimport public "confluent/type/decimal.proto";\n',
}
