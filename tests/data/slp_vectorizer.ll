; LLVM 22.1.0: the SLP vectoriser makes wrong code of this for x86-64-v4; see docs/how_jit_works.md.
; run0 takes the address of a CPython list of three float64 arrays: two of eight numbers, and the results.

define internal void @kernel0(ptr noalias %buffer0, ptr noalias %buffer1, ptr noalias %buffer2, ptr noalias %buffer3) #0 {
entry:
  %t17k0 = getelementptr inbounds double, ptr %buffer0, i64 4
  %t18k0 = load double, ptr %t17k0
  %t19k0 = getelementptr inbounds double, ptr %buffer1, i64 4
  %t20k0 = load double, ptr %t19k0
  %t137k0 = fmul double %t20k0, 1.5
  %t138k0 = fadd double %t18k0, %t137k0
  %t228k0 = getelementptr inbounds double, ptr %buffer2, i64 0
  store double 1.5, ptr %t228k0
  %t229k0 = getelementptr inbounds double, ptr %buffer2, i64 1
  store double 1.5, ptr %t229k0
  %t230k0 = getelementptr inbounds double, ptr %buffer2, i64 2
  store double 1.5, ptr %t230k0
  %t231k0 = getelementptr inbounds double, ptr %buffer2, i64 3
  store double 1.5, ptr %t231k0
  %t232k0 = getelementptr inbounds double, ptr %buffer2, i64 4
  store double 1.5, ptr %t232k0
  %t233k0 = getelementptr inbounds double, ptr %buffer2, i64 5
  store double 1.5, ptr %t233k0
  %t234k0 = getelementptr inbounds double, ptr %buffer2, i64 6
  store double 1.5, ptr %t234k0
  %t235k0 = getelementptr inbounds double, ptr %buffer2, i64 7
  store double 1.5, ptr %t235k0
  %t236k0 = getelementptr inbounds double, ptr %buffer3, i64 0
  store double 1.5, ptr %t236k0
  %t237k0 = getelementptr inbounds double, ptr %buffer3, i64 1
  store double 1.5, ptr %t237k0
  %t238k0 = getelementptr inbounds double, ptr %buffer3, i64 2
  store double 1.5, ptr %t238k0
  %t239k0 = getelementptr inbounds double, ptr %buffer3, i64 3
  store double 1.5, ptr %t239k0
  %t240k0 = getelementptr inbounds double, ptr %buffer3, i64 4
  store double 1.5, ptr %t240k0
  %t241k0 = getelementptr inbounds double, ptr %buffer3, i64 5
  store double %t138k0, ptr %t241k0
  %t242k0 = getelementptr inbounds double, ptr %buffer3, i64 6
  store double 1.5, ptr %t242k0
  %t243k0 = getelementptr inbounds double, ptr %buffer3, i64 7
  store double 1.5, ptr %t243k0
  ret void
}

define internal void @kernel1(ptr noalias %buffer0, ptr noalias %buffer1, ptr noalias %buffer2, ptr noalias %buffer3) #0 {
entry:
  br label %loop0
loop0:
  %i0 = phi i64 [ 0, %entry ], [ %i0.next, %loop0 ]
  %t3k1 = getelementptr inbounds double, ptr %buffer1, i64 %i0
  %t4k1 = load double, ptr %t3k1
  %t6k1 = fadd double %t4k1, %t4k1
  %t7k1 = getelementptr inbounds double, ptr %buffer2, i64 %i0
  store double 1.5, ptr %t7k1
  %t8k1 = getelementptr inbounds double, ptr %buffer3, i64 %i0
  store double %t6k1, ptr %t8k1
  %i0.next = add nuw nsw i64 %i0, 1
  %i0.more = icmp ult i64 %i0.next, 8
  br i1 %i0.more, label %loop0, label %done0
done0:
  ret void
}

define internal void @kernel2(ptr noalias %buffer0, ptr noalias %buffer1, ptr noalias %buffer2, ptr noalias %buffer3, ptr noalias %buffer4, ptr noalias %buffer5, ptr noalias %buffer6, ptr noalias %buffer7, ptr noalias %buffer8, ptr noalias %buffer9, ptr noalias %buffer10, ptr noalias %buffer11) #0 {
entry:
  %t1k2 = getelementptr inbounds double, ptr %buffer0, i64 7
  %t2k2 = load double, ptr %t1k2
  %t3k2 = getelementptr inbounds double, ptr %buffer1, i64 7
  %t4k2 = load double, ptr %t3k2
  %t5k2 = getelementptr inbounds double, ptr %buffer2, i64 7
  %t6k2 = load double, ptr %t5k2
  %t7k2 = getelementptr inbounds double, ptr %buffer2, i64 5
  %t8k2 = load double, ptr %t7k2
  %t9k2 = getelementptr inbounds double, ptr %buffer3, i64 7
  %t10k2 = load double, ptr %t9k2
  %t11k2 = getelementptr inbounds double, ptr %buffer3, i64 5
  %t12k2 = load double, ptr %t11k2
  %t13k2 = getelementptr inbounds double, ptr %buffer2, i64 1
  %t14k2 = load double, ptr %t13k2
  %t17k2 = getelementptr inbounds double, ptr %buffer2, i64 6
  %t18k2 = load double, ptr %t17k2
  %t19k2 = getelementptr inbounds double, ptr %buffer2, i64 4
  %t20k2 = load double, ptr %t19k2
  %t21k2 = getelementptr inbounds double, ptr %buffer3, i64 6
  %t22k2 = load double, ptr %t21k2
  %t23k2 = getelementptr inbounds double, ptr %buffer3, i64 4
  %t24k2 = load double, ptr %t23k2
  %t37k2 = getelementptr inbounds double, ptr %buffer1, i64 6
  %t38k2 = load double, ptr %t37k2
  %t39k2 = getelementptr inbounds double, ptr %buffer0, i64 6
  %t40k2 = load double, ptr %t39k2
  %t41k2 = getelementptr inbounds double, ptr %buffer0, i64 5
  %t42k2 = load double, ptr %t41k2
  %t43k2 = getelementptr inbounds double, ptr %buffer1, i64 5
  %t44k2 = load double, ptr %t43k2
  %t45k2 = getelementptr inbounds double, ptr %buffer0, i64 4
  %t46k2 = load double, ptr %t45k2
  %t49k2 = getelementptr inbounds double, ptr %buffer1, i64 3
  %t50k2 = load double, ptr %t49k2
  %t51k2 = getelementptr inbounds double, ptr %buffer0, i64 3
  %t52k2 = load double, ptr %t51k2
  %t53k2 = getelementptr inbounds double, ptr %buffer0, i64 2
  %t54k2 = load double, ptr %t53k2
  %t55k2 = getelementptr inbounds double, ptr %buffer1, i64 2
  %t56k2 = load double, ptr %t55k2
  %t57k2 = getelementptr inbounds double, ptr %buffer1, i64 1
  %t58k2 = load double, ptr %t57k2
  %t59k2 = getelementptr inbounds double, ptr %buffer1, i64 0
  %t60k2 = load double, ptr %t59k2
  %t62k2 = fneg double %t4k2
  %t63k2 = fmul double %t6k2, %t6k2
  %t101k2 = fmul double %t10k2, %t2k2
  %t102k2 = fadd double %t62k2, %t101k2
  %t144k2 = fmul double 1.5, %t18k2
  %t145k2 = fmul double %t22k2, 1.5
  %t146k2 = fadd double %t144k2, %t145k2
  %t191k2 = fmul double %t12k2, %t2k2
  %t192k2 = fadd double 1.5, %t191k2
  %t237k2 = fmul double %t24k2, 1.5
  %t238k2 = fadd double %t20k2, %t237k2
  %t245k2 = fadd double %t63k2, %t40k2
  %t246k2 = fadd double %t192k2, %t245k2
  %t285k2 = fmul double %t22k2, 1.5
  %t286k2 = fadd double 1.5, %t285k2
  %t287k2 = fadd double %t238k2, %t286k2
  %t322k2 = fadd double %t38k2, 1.5
  %t323k2 = fadd double %t102k2, %t322k2
  %t359k2 = fadd double %t146k2, 1.5
  %t366k2 = fmul double %t10k2, %t42k2
  %t372k2 = fmul double %t366k2, %t8k2
  %t375k2 = fadd double %t323k2, %t372k2
  %t390k2 = fadd double %t359k2, 1.5
  %t391k2 = fadd double %t246k2, %t44k2
  %t397k2 = fadd double %t287k2, %t44k2
  %t436k2 = fadd double %t14k2, %t6k2
  %t438k2 = fadd double %t391k2, %t12k2
  %t460k2 = fmul double %t18k2, 0x4000000000000000
  %t461k2 = fadd double %t397k2, %t460k2
  %t467k2 = fadd double %t375k2, %t46k2
  %t475k2 = fmul double %t10k2, 1.5
  %t480k2 = fmul double %t12k2, 1.5
  %t481k2 = fadd double %t8k2, %t480k2
  %t482k2 = fadd double %t436k2, %t481k2
  %t483k2 = fadd double %t482k2, %t481k2
  %t487k2 = fadd double %t390k2, %t20k2
  %t493k2 = fneg double 1.5
  %t494k2 = fmul double %t493k2, %t18k2
  %t496k2 = fadd double %t494k2, %t22k2
  %t498k2 = fadd double %t496k2, %t496k2
  %t499k2 = fmul double 1.5, %t20k2
  %t500k2 = fmul double %t24k2, 0.75
  %t501k2 = fadd double %t499k2, %t500k2
  %t503k2 = fadd double %t501k2, %t501k2
  %t504k2 = fmul double %t50k2, 1.5
  %t505k2 = fmul double 1.5, %t52k2
  %t506k2 = fadd double %t504k2, %t505k2
  %t507k2 = fadd double %t483k2, %t506k2
  %t510k2 = fadd double %t8k2, %t52k2
  %t511k2 = fadd double %t438k2, %t510k2
  %t515k2 = fadd double %t503k2, %t50k2
  %t518k2 = fadd double %t20k2, %t52k2
  %t519k2 = fadd double %t461k2, %t518k2
  %t523k2 = fadd double %t475k2, %t50k2
  %t524k2 = fmul double %t50k2, %t6k2
  %t527k2 = fadd double %t467k2, %t524k2
  %t531k2 = fadd double %t498k2, %t50k2
  %t532k2 = fmul double %t50k2, %t18k2
  %t534k2 = fadd double %t532k2, 1.5
  %t535k2 = fadd double %t487k2, %t534k2
  %t536k2 = fneg double %t54k2
  %t541k2 = fadd double %t523k2, %t56k2
  %t542k2 = fmul double %t56k2, %t6k2
  %t543k2 = fmul double %t10k2, %t536k2
  %t544k2 = fadd double %t542k2, %t543k2
  %t545k2 = fadd double %t511k2, %t544k2
  %t549k2 = fadd double %t531k2, %t56k2
  %t550k2 = fmul double %t56k2, %t18k2
  %t551k2 = fmul double %t22k2, %t536k2
  %t552k2 = fadd double %t550k2, %t551k2
  %t553k2 = fadd double %t519k2, %t552k2
  %t554k2 = fadd double %t527k2, %t56k2
  %t558k2 = fadd double %t515k2, %t56k2
  %t562k2 = fadd double %t535k2, %t54k2
  %t563k2 = fadd double %t553k2, %t58k2
  %t564k2 = fadd double %t545k2, %t58k2
  %t565k2 = fadd double %t562k2, %t60k2
  %t566k2 = fadd double %t554k2, %t60k2
  %t567k2 = getelementptr inbounds double, ptr %buffer4, i64 0
  store double %t507k2, ptr %t567k2
  %t568k2 = getelementptr inbounds double, ptr %buffer5, i64 0
  store double %t541k2, ptr %t568k2
  %t569k2 = getelementptr inbounds double, ptr %buffer6, i64 0
  store double %t549k2, ptr %t569k2
  %t570k2 = getelementptr inbounds double, ptr %buffer7, i64 0
  store double %t558k2, ptr %t570k2
  %t571k2 = getelementptr inbounds double, ptr %buffer8, i64 0
  store double %t563k2, ptr %t571k2
  %t572k2 = getelementptr inbounds double, ptr %buffer9, i64 0
  store double %t564k2, ptr %t572k2
  %t573k2 = getelementptr inbounds double, ptr %buffer10, i64 0
  store double %t565k2, ptr %t573k2
  %t574k2 = getelementptr inbounds double, ptr %buffer11, i64 0
  store double %t566k2, ptr %t574k2
  ret void
}

define internal void @kernel3(ptr noalias %buffer0, ptr noalias %buffer1, ptr noalias %buffer2, ptr noalias %buffer3, ptr noalias %buffer4, ptr noalias %buffer5, ptr noalias %buffer6, ptr noalias %buffer7, ptr noalias %buffer8) #0 {
entry:
  %t1k3 = getelementptr inbounds double, ptr %buffer7, i64 0
  %t2k3 = load double, ptr %t1k3
  %t9k3 = fadd double 1.5, %t2k3
  %t10k3 = getelementptr inbounds double, ptr %buffer8, i64 0
  store double %t9k3, ptr %t10k3
  %t11k3 = getelementptr inbounds double, ptr %buffer6, i64 0
  %t12k3 = load double, ptr %t11k3
  %t19k3 = fadd double %t12k3, 0x0000000000000000
  %t20k3 = getelementptr inbounds double, ptr %buffer8, i64 1
  store double %t19k3, ptr %t20k3
  %t21k3 = getelementptr inbounds double, ptr %buffer5, i64 0
  %t22k3 = load double, ptr %t21k3
  %t28k3 = fadd double %t22k3, 0x0000000000000000
  %t30k3 = getelementptr inbounds double, ptr %buffer8, i64 2
  store double %t28k3, ptr %t30k3
  %t31k3 = getelementptr inbounds double, ptr %buffer4, i64 0
  %t32k3 = load double, ptr %t31k3
  %t39k3 = fadd double %t32k3, 0x0000000000000000
  %t40k3 = getelementptr inbounds double, ptr %buffer8, i64 3
  store double %t39k3, ptr %t40k3
  %t41k3 = getelementptr inbounds double, ptr %buffer3, i64 0
  %t42k3 = load double, ptr %t41k3
  %t46k3 = fadd double %t42k3, 0x0000000000000000
  %t50k3 = getelementptr inbounds double, ptr %buffer8, i64 4
  store double %t46k3, ptr %t50k3
  %t51k3 = getelementptr inbounds double, ptr %buffer2, i64 0
  %t52k3 = load double, ptr %t51k3
  %t55k3 = fadd double %t52k3, 0x0000000000000000
  %t56k3 = fadd double %t55k3, 0x0000000000000000
  %t60k3 = getelementptr inbounds double, ptr %buffer8, i64 5
  store double %t56k3, ptr %t60k3
  %t61k3 = getelementptr inbounds double, ptr %buffer1, i64 0
  %t62k3 = load double, ptr %t61k3
  %t63k3 = fadd double 0x0000000000000000, %t62k3
  %t64k3 = fadd double %t63k3, 0x0000000000000000
  %t70k3 = getelementptr inbounds double, ptr %buffer8, i64 6
  store double %t64k3, ptr %t70k3
  %t71k3 = getelementptr inbounds double, ptr %buffer0, i64 0
  %t72k3 = load double, ptr %t71k3
  %t79k3 = fadd double %t72k3, 0x0000000000000000
  %t80k3 = getelementptr inbounds double, ptr %buffer8, i64 7
  store double %t79k3, ptr %t80k3
  ret void
}

define i32 @run0(ptr %list) #0 {
entry:
  %stack = alloca [640 x i8], align 64
  %at = getelementptr i8, ptr %list, i64 24
  %items = load ptr, ptr %at
  %item0.at = getelementptr ptr, ptr %items, i64 0
  %item0 = load ptr, ptr %item0.at
  %data0.at = getelementptr i8, ptr %item0, i64 16
  %data0 = load ptr, ptr %data0.at
  %item1.at = getelementptr ptr, ptr %items, i64 1
  %item1 = load ptr, ptr %item1.at
  %data1.at = getelementptr i8, ptr %item1, i64 16
  %data1 = load ptr, ptr %data1.at
  %place4 = getelementptr i8, ptr %stack, i64 64
  %place5 = getelementptr i8, ptr %stack, i64 128
  %place6 = getelementptr i8, ptr %stack, i64 192
  %place8 = getelementptr i8, ptr %stack, i64 64
  %place9 = getelementptr i8, ptr %stack, i64 256
  %place10 = getelementptr i8, ptr %stack, i64 320
  %place11 = getelementptr i8, ptr %stack, i64 384
  %place12 = getelementptr i8, ptr %stack, i64 448
  %place13 = getelementptr i8, ptr %stack, i64 512
  %place14 = getelementptr i8, ptr %stack, i64 576
  %item2.at = getelementptr ptr, ptr %items, i64 2
  %item2 = load ptr, ptr %item2.at
  %data2.at = getelementptr i8, ptr %item2, i64 16
  %data2 = load ptr, ptr %data2.at
  call void @kernel0(ptr %data0, ptr %data1, ptr %stack, ptr %place4)
  call void @kernel1(ptr %stack, ptr %place4, ptr %place5, ptr %place6)
  call void @kernel2(ptr %place5, ptr %place6, ptr %data0, ptr %data1, ptr %stack, ptr %place8, ptr %place9, ptr %place10, ptr %place11, ptr %place12, ptr %place13, ptr %place14)
  call void @kernel3(ptr %place8, ptr %place9, ptr %stack, ptr %place10, ptr %place12, ptr %place11, ptr %place14, ptr %place13, ptr %data2)
  ret i32 0
}

attributes #0 = { nounwind "prefer-vector-width"="512" }
attributes #1 = { nounwind willreturn memory(none) }
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.unroll.full"}
