# SPDX-License-Identifier: Apache-2.0
# The project of a user of the installed package, copied to CMakeLists.txt by consumer.sh.
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES ${LANGUAGES})
find_package(m3idx 0.1 REQUIRED)
set(source_C consumer.c)
set(source_CXX consumer.cpp)
foreach(lib m3idx m3idx_static)
  foreach(language ${LANGUAGES})
    add_executable(use_${lib}_${language} ${source_${language}})
    target_link_libraries(use_${lib}_${language} PRIVATE m3idx::${lib})
  endforeach()
endforeach()
