# SPDX-License-Identifier: Apache-2.0
# Installation: libraries, the public header with the lists it includes, find_package(m3idx) and pkg-config.
install(TARGETS m3idx m3idx_static EXPORT m3idx-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES common/m3idx.h common/ops.def common/status.def common/dtype.def
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/m3idx)

set(m3idx_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/m3idx)
set(M3IDX_HAVE_OPENMP OFF)
set(m3idx_pc_libs_private ${CMAKE_DL_LIBS} m)
list(TRANSFORM m3idx_pc_libs_private PREPEND "-l")
if(TARGET OpenMP::OpenMP_C)
  set(M3IDX_HAVE_OPENMP ON)
  list(APPEND m3idx_pc_libs_private ${OpenMP_C_FLAGS})
endif()
list(JOIN m3idx_pc_libs_private " " m3idx_pc_libs_private)

install(EXPORT m3idx-targets NAMESPACE m3idx:: DESTINATION ${m3idx_package_dir})
configure_package_config_file(cmake/m3idx-config.cmake.in m3idx-config.cmake
  INSTALL_DESTINATION ${m3idx_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(m3idx-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/m3idx-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/m3idx-config-version.cmake
  DESTINATION ${m3idx_package_dir})

# A prefix relative to the .pc file survives `cmake --install --prefix` and staging.
foreach(dir LIBDIR INCLUDEDIR)
  cmake_path(IS_ABSOLUTE CMAKE_INSTALL_${dir} m3idx_absolute)
  if(m3idx_absolute)
    set(m3idx_pc_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(m3idx_pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR m3idx_absolute)
if(m3idx_absolute)
  set(m3idx_pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
    BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE m3idx_pc_up)
  set(m3idx_pc_prefix "\${pcfiledir}/${m3idx_pc_up}")
endif()
configure_file(cmake/m3idx.pc.in m3idx.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/m3idx.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
