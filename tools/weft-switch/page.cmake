# SPDX-License-Identifier: Apache-2.0
# Turn page.html into a C file: cmake -D IN=page.html -D OUT=page.c -P page.cmake
file(READ ${IN} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR length "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)"
       "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "#include \"server.h\"\n"
     "const char sw_page[] = {\n${bytes}0};\n"
     "const size_t sw_page_bytes = ${length};\n")
